#!/bin/sh
# Instructions of one commit by one writer: what N more commits cost, divided by N. Creating,
# opening and closing the store cancel out. Does not depend on disk, load or neighbours.
set -eu
cd "$(dirname "$0")"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
cargo build --release --quiet --example commit_path
base=1000 more=2000
count() {
    out="$CARGO_TARGET_DIR/callgrind.$1"
    valgrind --quiet --tool=callgrind --callgrind-out-file="$out" \
        "$CARGO_TARGET_DIR/release/examples/commit_path" "$1" >&2
    sed -n 's/^\(summary\|totals\): //p' "$out" | head -n 1
}
few=$(count $base)
many=$(count $((base + more)))
echo "instructions per commit: $(((many - few) / more))"
echo "where they go: callgrind_annotate $CARGO_TARGET_DIR/callgrind.$((base + more))"
