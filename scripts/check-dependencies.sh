#!/usr/bin/env bash
# Licences, bans and sources always; advisories wherever their database can be had. A failed fetch is not a failed check,
# but it is never silent.
set -euo pipefail
cd "$(dirname "$0")/.."
deny=(target/tools/bin/cargo-deny --locked)

"${deny[@]}" check licenses bans sources

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if timeout 180 "${deny[@]}" fetch db >"$log" 2>&1; then
    "${deny[@]}" check advisories
else
    tail -n 3 "$log" >&2
    printf '%s\n' '' \
        '*************************************************************************' \
        '* ADVISORIES WERE NOT CHECKED: the advisory database cannot be fetched. *' \
        '* Run `make lint` once where the network allows it.                     *' \
        '*************************************************************************' >&2
fi
