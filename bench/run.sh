#!/bin/sh
# Runs every arm, keeps the run in .nornir/history.jsonl, renders the README's tables and the plots.
# `run.sh render` renders the last full run again. See README.md.
set -eu
cd "$(dirname "$0")"
# One target directory for this program and for the example that it has cargo build.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
exec cargo run --release --quiet --bin bench-report -- "$@"
