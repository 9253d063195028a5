#!/bin/sh
# The whole test suite: what it needs beyond cargo, git and python3 it puts under target/.
set -eu
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }

# On a full disk whatever runs then fails, whether it has to do with space or not.
needed_kib=$((6 * 1024 * 1024))
built_kib=$(du -sck target 2>/dev/null | tail -n 1 | cut -f 1)
free_kib=$(df -Pk . | awk 'NR == 2 { print $4 }')
if [ $((built_kib + free_kib)) -lt "$needed_kib" ]; then
    echo "test.sh: builds and tests take some 6 GiB under target/;" \
        "$((built_kib / 1024)) MiB are there and $((free_kib / 1024)) MiB are free: make room, and run it again" >&2
    exit 1
fi

step "format and lints"
cargo fmt --all -- --check
for apart in bench bench/levers fuzz; do (cd "$apart" && cargo fmt -- --check); done
cargo clippy --workspace --all-targets -- -D warnings
cargo clippy -p refstone-tests --features shuttle,refstone-log/sabotage --test models -- -D warnings

for apart in bench/levers fuzz; do
    (cd "$apart" && CARGO_TARGET_DIR="$OLDPWD/target" cargo clippy --all-targets -- -D warnings)
done

step "documentation"
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet

step "build"
cargo build --workspace

step "tests"
cargo test --workspace

step "outside readers"
venv=target/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --requirement python-interop/requirements.txt
REFSTONE_BIN="$PWD/target/debug/refstone" "$venv/bin/python" -m pytest -q python-interop

# From here on programs are built that are not the product.
step "interleavings"
cargo test -p refstone-tests --features shuttle --test models

step "red proofs"
cargo run -p refstone-tests --bin red_proofs

# With a target directory of its own: what these settings build is not what is measured with.
step "benches, in small"
mkdir -p target/bench
(
    cd bench
    export CARGO_TARGET_DIR="$OLDPWD/target/bench" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0
    cargo test --release && cargo clippy --release --all-targets -- -D warnings
) >target/bench/tests.log 2>&1 || { tail -n 60 target/bench/tests.log; exit 1; }
