#!/bin/sh
# Greets the world.

set -eu

echo "Hello, world!"
