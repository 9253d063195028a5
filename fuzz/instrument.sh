#!/bin/sh
# Stands before rustc (RUSTC_WRAPPER) and has it count, for libFuzzer, what refstone's own crates do.
# Dependencies stay as they are, so those of an ordinary build are used again.
previous=
for argument in "$@"; do
    [ "$previous" = --crate-name ] && name=$argument
    previous=$argument
done
case "${name-}" in
refstone* | frames | names | packets | recovery)
    exec "$@" -Copt-level=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
*) exec "$@" ;;
esac
