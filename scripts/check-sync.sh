#!/usr/bin/env bash
# Does this binary sync its database the cheap way? One fdatasync for a commit, no fsync: an fsync would make the file system
# write its own journal each time, which doubles the wear. It shows only in the system calls, so strace is needed.
#
#   check-sync.sh BINARY
set -euo pipefail

readonly binary=$1 seconds=${CHECK_SYNC_SECONDS:-4}
command -v strace >/dev/null || { echo "check-sync: no strace here, nothing was checked" >&2; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/site.toml" <<SITE
[site]
name = "check-sync"
[store]
path = "$folder/store.db"
max_bytes = "48MiB"
commit_every = "100ms"
[upstream]
type = "archive"
folder = "$folder/archive"
[web]
enabled = false
[sources.demo]
type = "simulated"
every = "50ms"
SITE
mkdir "$folder/archive"
timeout --signal=TERM "$seconds" strace -f -qq -y -e trace=fsync,fdatasync -o "$folder/trace" \
    "$binary" run --config "$folder/site.toml" >"$folder/log" 2>&1 || true
if ! grep -q 'fdatasync(.*store\.db-wal' "$folder/trace" 2>/dev/null; then
    if grep -qi 'ptrace\|not permitted' "$folder/log"; then
        echo "check-sync: strace may not trace here, nothing was checked" >&2
        exit 0
    fi
    echo "check-sync: $binary never calls fdatasync for its log" >&2
    tail -5 "$folder/log" >&2
    exit 1
fi
if grep 'fsync(' "$folder/trace" | grep -q 'store\.db\(-wal\)\?>'; then
    echo "check-sync: $binary calls fsync for its database; was SQLite built without HAVE_FDATASYNC?" >&2
    exit 1
fi
echo "check-sync: $(grep -c 'fdatasync(.*store\.db-wal' "$folder/trace") fdatasyncs of the log, no fsync"
