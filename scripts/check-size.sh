#!/usr/bin/env bash
# check-size.sh MAX FILE...: prints each file's size and fails when one is above MAX bytes.
set -euo pipefail
max=$1
shift
rc=0
for file in "$@"; do
    size=$(stat -c %s "$file")
    printf '%s\t%d.%02d MB\n' "$file" $((size / 1000000)) $((size % 1000000 / 10000))
    if [ "$size" -gt "$max" ]; then
        printf '%s: %s bytes, above the limit of %s\n' "$file" "$size" "$max" >&2
        rc=1
    fi
done
exit "$rc"
