#!/usr/bin/env bash
# A simulated greenhouse on real terminals, and over MQTT where mosquitto is present; tipbucket reads it, makes buckets and
# delivers the complete ones into an archive folder, or into MongoDB.
#
#   MONGODB_URI=mongodb://host:27017   deliver there
#   DEMO_SECONDS=60                    until the summary; on a terminal the demo goes on after it, until Ctrl-C
#   DEMO_DIR=target/demo               where everything goes; emptied at the start
#   TIPBUCKET=path                     use this binary and build nothing but the greenhouse
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_TO_SUMMARY=${DEMO_SECONDS:-60}
mkdir -p "${DEMO_DIR:-target/demo}"
DIR=$(cd "${DEMO_DIR:-target/demo}" && pwd)
readonly DIR
readonly TARGET=${CARGO_TARGET_DIR:-target}

say() { printf '%s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

children=()
stop_children() {
    local child
    trap - EXIT INT TERM
    for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; done
    for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
}
trap stop_children EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() { # the first free one from $1 on
    local port
    for ((port = $1; port < $1 + 100; port++)); do
        if port_is_free "$port"; then
            printf '%s' "$port"
            return 0
        fi
    done
    fail "no free port from $1 to $((port - 1))"
}

# until_true WHAT SECONDS COMMAND...
until_true() {
    local what=$1 deadline=$((SECONDS + $2))
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || fail "$what did not come up; see the logs in $DIR"
        sleep 0.2
    done
}
listens() { ! port_is_free "$1"; }

# render FILE: fills in the places. Bash replaces here, so that a URI may hold any character.
render() {
    local text
    text=$(<"$1")
    text=${text//@DIR@/"$DIR"}
    text=${text//@WEB_PORT@/"$web_port"}
    text=${text//@MQTT_PORT@/"${mqtt_port:-}"}
    text=${text//@MONGODB_URI@/"${MONGODB_URI:-}"}
    printf '%s\n' "$text"
}

build() {
    say "building (the first time takes some minutes) ..."
    if [ -n "${TIPBUCKET:-}" ]; then
        cargo build --locked --quiet --example greenhouse
    else
        cargo build --locked --bin tipbucket --example greenhouse
        TIPBUCKET=$TARGET/debug/tipbucket
    fi
}

empty_folder() {
    [ -z "$(ls -A "$DIR")" ] || [ -e "$DIR/.tipbucket-demo" ] ||
        fail "$DIR holds something that is not a demo's; name another folder with DEMO_DIR"
    find "$DIR" -mindepth 1 -delete
    touch "$DIR/.tipbucket-demo"
}

start_broker() {
    local mosquitto
    mosquitto=$(PATH=$PATH:/usr/sbin command -v mosquitto) || {
        say "no mosquitto here: the demo goes without MQTT (Debian: apt-get install mosquitto)"
        return 0
    }
    mqtt_port=$(free_port 18830)
    printf '%s\n' "listener $mqtt_port 127.0.0.1" "allow_anonymous true" "persistence false" >"$DIR/mosquitto.conf"
    "$mosquitto" -c "$DIR/mosquitto.conf" >"$DIR/mosquitto.log" 2>&1 &
    children+=($!)
    until_true "the broker" 10 listens "$mqtt_port"
}

start_greenhouse() {
    "$TARGET/debug/examples/greenhouse" --dir "$DIR" ${mqtt_port:+--mqtt-port "$mqtt_port"} >"$DIR/greenhouse.log" 2>&1 &
    children+=($!)
    until_true "the greenhouse" 10 test -e "$DIR/ttyLines"
}

write_site_file() {
    web_port=$(free_port 8780)
    mkdir -p "$DIR/site.toml.d" "$DIR/archive"
    (
        umask 077 # the database's address may hold a password
        render config/demo/site.toml >"$DIR/site.toml"
        [ -z "${mqtt_port:-}" ] || render config/demo/mqtt.toml >"$DIR/site.toml.d/mqtt.toml"
        if [ -n "${MONGODB_URI:-}" ]; then
            render config/demo/mongodb.toml >"$DIR/site.toml.d/upstream.toml"
        else
            render config/demo/archive.toml >"$DIR/site.toml.d/upstream.toml"
        fi
    )
}

start_daemon() {
    "$TIPBUCKET" check --config "$DIR/site.toml" >"$DIR/check.log" 2>&1 || { cat "$DIR/check.log" >&2; fail "the site file is refused"; }
    "$TIPBUCKET" run --config "$DIR/site.toml" >"$DIR/tipbucket.log" 2>&1 &
    daemon=$!
    children=("$daemon" "${children[@]}") # stopped first
    until_true "tipbucket" 20 daemon_is_up
}
daemon_is_up() {
    kill -0 "$daemon" 2>/dev/null || { tail -n 20 "$DIR/tipbucket.log" >&2; fail "tipbucket ended"; }
    listens "$web_port"
}

print_places() {
    cat <<END

  status page   http://127.0.0.1:$web_port/      (also /status.json, /metrics, /healthz)
  site file     $DIR/site.toml
  database      $DIR/tipbucket.db
  serial lines  $DIR/ttyModbus, $DIR/ttyLines
END
    if [ -n "${mqtt_port:-}" ]; then say "  broker        mqtt://127.0.0.1:$mqtt_port   topics sensors/+/state"; fi
    if [ -n "${MONGODB_URI:-}" ]; then
        say "  delivers to   MongoDB, telemetry.buckets"
    else
        say "  delivers to   $DIR/archive"
    fi
    local program
    program=$(realpath "$TIPBUCKET")
    cat <<END
  logs          $DIR/tipbucket.log

Look around from another terminal:
  $(printf '%q' "$program") status --config $(printf '%q' "$DIR/site.toml")
  $(printf '%q' "$program") check --config $(printf '%q' "$DIR/site.toml")
  tail -f $(printf '%q' "$DIR/tipbucket.log")

Buckets close every 10 s. A summary follows after $SECONDS_TO_SUMMARY s.
END
}

wait_with_daemon() { # for $1 seconds, or as long as it lives
    local deadline=$((SECONDS + $1))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$daemon" 2>/dev/null || { tail -n 20 "$DIR/tipbucket.log" >&2; fail "tipbucket ended"; }
        sleep 1 & wait $!
    done
}

archived() { # how many documents about sensor $1 stand in the archive
    find "$DIR/archive" -type f -name '*.ndjson*' ! -name '*.tmp*' -exec cat {} + 2>/dev/null |
        grep -c "\"sensor\":\"$1\"" || true
}

summary() {
    local sensor count sensors=(boiler-meter climate) missing=()
    [ -z "${mqtt_port:-}" ] || sensors+=(bench-north bench-south seedlings propagator)
    say ""
    say "After $SECONDS_TO_SUMMARY s:"
    "$TIPBUCKET" status --config "$DIR/site.toml" || fail "status failed"
    [ -z "${MONGODB_URI:-}" ] || return 0
    say ""
    say "Complete buckets in the archive:"
    for sensor in "${sensors[@]}"; do
        count=$(archived "$sensor")
        printf '  %-14s %s\n' "$sensor" "$count"
        [ "$count" -gt 0 ] || missing+=("$sensor")
    done
    [ ${#missing[@]} -eq 0 ] || fail "nothing arrived from: ${missing[*]}"
}

build
empty_folder
start_broker
start_greenhouse
write_site_file
start_daemon
print_places
wait_with_daemon "$SECONDS_TO_SUMMARY"
summary
if [ -t 1 ]; then
    say ""
    say "Everything goes on until Ctrl-C."
    trap 'exit 0' INT
    wait_with_daemon 86400
fi
