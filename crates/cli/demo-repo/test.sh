#!/bin/sh
# Compares what greet.sh prints with what it should print.

failures=0

check() {
    wanted=$1
    shift
    got=$(sh greet.sh "$@")
    if [ "$got" = "$wanted" ]; then
        echo "ok    greet.sh${*:+ $*}"
    else
        echo "FAIL  greet.sh${*:+ $*}: wanted '$wanted', got '$got'"
        failures=$((failures + 1))
    fi
}

check 'Hello, world!'
check 'Hello, Ada!' Ada

[ "$failures" -eq 0 ]
