#!/usr/bin/env bash
# test-systemd.sh BINARY: the unit under a real systemd. Boots a small Debian in a container (systemd-nspawn), installs the
# program as `make install` does, and lets the drill below judge: start, hardening, watchdog, crash, stop. Needs root.
#
#   NSPAWN_ROOT=target/nspawn   the Debian tree; made once with debootstrap (a minute or two)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'test-systemd: %s\n' "$*" >&2; exit 1; }
[ $# -eq 1 ] && [ -x "$1" ] || fail "usage: test-systemd.sh BINARY"
[ "$(id -u)" -eq 0 ] || fail "booting a container needs root"
readonly BINARY=$1
readonly BOOT_SECONDS=240 # boot, drill and end; the drill itself waits for some restarts of five seconds
mkdir -p "${NSPAWN_ROOT:-target/nspawn}"
ROOT=$(cd "${NSPAWN_ROOT:-target/nspawn}" && pwd)
readonly ROOT

make_tree() {
    [ ! -e "$ROOT/.complete" ] || return 0
    echo "making a Debian tree in $ROOT ..."
    find "$ROOT" -mindepth 1 -delete
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$ROOT" >"$ROOT.log" 2>&1 ||
        { tail -n 5 "$ROOT.log" >&2; fail "debootstrap failed"; }
    touch "$ROOT/.complete"
}

install_program() {
    rm -rf "$ROOT/var/lib/tipbucket" "$ROOT/etc/tipbucket" "$ROOT/etc/systemd/system/tipbucket.service.d" "$ROOT/var/lib/drill"
    make --silent install DESTDIR="$ROOT" BINARY="$BINARY"
    systemd-sysusers --root="$ROOT" "$ROOT/usr/lib/sysusers.d/tipbucket.conf"
    cat >"$ROOT/etc/tipbucket/site.toml" <<'END'
[site]
name = "drill"
[bucket]
window = "1s"
grace = "0s"
[upstream]
type = "archive"
folder = "/var/lib/tipbucket/archive"
max_file_age = "1s"
[sources.simulation]
type = "simulated"
sensors = 10
END
    chroot "$ROOT" chgrp tipbucket /etc/tipbucket/site.toml
    # What takes a minute in earnest takes seconds here.
    mkdir -p "$ROOT/etc/systemd/system/tipbucket.service.d"
    printf '[Service]\nWatchdogSec=3\nRestartSec=1\nStateDirectory=tipbucket/archive\n' >"$ROOT/etc/systemd/system/tipbucket.service.d/drill.conf"
}

install_drill() {
    mkdir -p "$ROOT/var/lib/drill" "$ROOT/etc/systemd/system/multi-user.target.wants"
    cat >"$ROOT/etc/systemd/system/drill.service" <<'END'
[Unit]
Description=drill of tipbucket.service
[Service]
Type=oneshot
ExecStart=/bin/bash /var/lib/drill/drill.sh
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
END
    ln -sf ../drill.service "$ROOT/etc/systemd/system/multi-user.target.wants/drill.service"
    cat >"$ROOT/var/lib/drill/drill.sh" <<'END'
exec >/var/lib/drill/report 2>&1
trap 'journalctl --no-pager --output=cat --unit tipbucket >/var/lib/drill/journal' EXIT
failures=0
show() { systemctl show --value --property="$1" tipbucket; }
# check WHAT SECONDS COMMAND...: true within so many seconds
check() {
    local what=$1 deadline=$((SECONDS + $2))
    shift 2
    until "$@"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "not ok: $what"
            failures=$((failures + 1))
            return 0
        fi
        sleep 0.2
    done
    echo "ok: $what"
}
shows() { [ "$(show "$1")" = "$2" ]; }
not() { ! "$@"; }
process_says() { grep -qP "^$1:\t$2\$" "/proc/$(show MainPID)/status"; }
restarted() { [ "$(show NRestarts)" -eq "$1" ] && shows ActiveState active; }
archived() { [ -n "$(find /var/lib/tipbucket/archive -type f -size +0 -print -quit 2>/dev/null)" ]; }
has_text() { [[ "$(show StatusText)" == *"readings of 10 sensors"* ]]; }

check "the start returns when the program is ready" 0 systemctl start tipbucket
[ "$(show MainPID)" -gt 1 ] || { systemctl status --no-pager tipbucket; exit 1; }
check "it is active" 0 shows ActiveState active
check "it tells how it stands" 15 has_text
check "no capabilities" 0 process_says CapEff 0000000000000000
check "no new privileges" 0 process_says NoNewPrivs 1
check "system calls are filtered" 0 process_says Seccomp 2
check "its own account" 0 [ "$(stat -c %U "/proc/$(show MainPID)")" = tipbucket ]
check "its state is its own" 0 [ "$(stat -c '%U %a' /var/lib/tipbucket)" = "tipbucket 750" ]
check "buckets are delivered under the hardening" 20 archived
check "status is answered" 5 tipbucket status
ping=$(show WatchdogTimestampMonotonic)
check "the watchdog is fed" 10 not shows WatchdogTimestampMonotonic "$ping"
sleep 7 # twice the limit: only one that is fed outlives it
check "and not starved" 0 restarted 0
systemctl kill --kill-who=main --signal=KILL tipbucket
check "killed, it is started again" 20 restarted 1
systemctl kill --kill-who=main --signal=STOP tipbucket
check "hanging, it is replaced" 30 restarted 2
check "by the watchdog" 0 grep -q "Watchdog timeout" <(journalctl --no-pager --unit tipbucket)
begun=$SECONDS
check "it stops" 0 systemctl stop tipbucket
check "within ten seconds" 0 [ $((SECONDS - begun)) -le 10 ]
check "successfully" 0 shows Result success
check "with exit code 0" 0 shows ExecMainStatus 0
check "and can be started again" 0 systemctl start tipbucket
check "stays stopped when stopped" 0 systemctl stop tipbucket
echo "done: $failures failures"
END
}

boot() {
    # Neither a host's bus nor its machine registry is needed, and the container sees no network.
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout -k 5 "$BOOT_SECONDS" \
        systemd-nspawn --quiet --directory="$ROOT" --register=no --keep-unit --private-network --console=pipe --boot \
        </dev/null >"$ROOT/var/lib/drill/console" 2>&1 || true
}

make_tree
install_program
install_drill
echo "booting ..."
boot
report=$ROOT/var/lib/drill/report
[ -e "$report" ] || { tail -n 20 "$ROOT/var/lib/drill/console" >&2; fail "the container did not boot"; }
cat "$report"
grep -qx 'done: 0 failures' "$report" || { tail -n 40 "$ROOT/var/lib/drill/journal" >&2; fail "the unit failed its drill"; }
