#!/bin/sh
# Publishes a release. Each line of releases.log is one release that went out and cannot be taken back.

set -eu

echo "release $(date -u +%Y-%m-%dT%H:%M:%SZ)" >> releases.log
echo "The release is out; telling the mirrors..."
sleep 3
echo "All mirrors know."
