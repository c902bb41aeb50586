#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 30), beginning with the samples in tests/corpus; ends at the first failure.
#
#   fuzz.sh [SECONDS] [TARGET...]
#   fuzz.sh --check      only sees whether every target still compiles, on the stable toolchain
set -euo pipefail
cd "$(dirname "$0")/.."

# The versions that the product has.
cp Cargo.lock fuzz/Cargo.lock
if [ "${1:-}" = --check ]; then
    exec cargo check --manifest-path fuzz/Cargo.toml --target-dir fuzz/target/check
fi

seconds=${1:-30}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cd fuzz/fuzz_targets && ls -- *.rs | sed 's/\.rs$//')
fi
# Longest input: more than any sample, and short enough for thousands of runs a second.
readonly MAX_LEN=16384

export PATH="$PWD/target/tools/bin:$PATH"
for target in "${targets[@]}"; do
    printf 'fuzz: %s for %s s\n' "$target" "$seconds" >&2
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run --fuzz-dir fuzz "$target" "fuzz/corpus/$target" tests/corpus/mqtt tests/corpus/serial -- \
        -max_total_time="$seconds" -max_len="$MAX_LEN" -rss_limit_mb=512 -timeout=5 -verbosity=0 -print_final_stats=1
done
