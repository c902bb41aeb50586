#!/usr/bin/env bash
# Installs what a make target needs and this machine lacks; does nothing where nothing is missing.
#
#   setup-test.sh build   a C compiler and linker
#   setup-test.sh lint    build, rustfmt and clippy, cargo-deny in target/tools
#   setup-test.sh fuzz    build, cargo-fuzz in target/tools; a nightly toolchain must be there
#   setup-test.sh test    build, the broker, tools and servers the suite talks to (target/venv)
#   setup-test.sh cross   build, both ARM cross compilers and Rust targets
#   setup-test.sh arm     test, cross and qemu-user
#   setup-test.sh systemd build, debootstrap and systemd-nspawn
#
# Debian packages need root or sudo. Elsewhere the script names what to install and stops.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly DENY_VERSION=0.20.2
readonly FUZZ_VERSION=0.13.2
readonly ARM_TARGETS=(aarch64-unknown-linux-gnu armv7-unknown-linux-gnueabihf)

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }

packages=()
# need PACKAGE TEST...: asks for the package when the test fails.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || packages+=("$package")
}

links() { # can COMPILER make a program?
    local out
    out=$(mktemp) || return 1
    local rc=0
    printf '#include <stdio.h>\n#include <pthread.h>\nint main(void) { return puts("") < 0; }\n' |
        "$1" -x c - -o "$out" || rc=1
    rm -f "$out"
    return "$rc"
}

python_fits() { # 3.10 to 3.13: the versions SecantusDB is built for
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null 2>&1 && python_fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

want_build() {
    have cargo || fail "cargo is missing: install the Rust toolchain first"
    links cc 2>/dev/null || packages+=(gcc libc6-dev)
    need make have make
    need git have git
}

want_test() {
    need mosquitto have mosquitto
    need systemd have systemd-analyze
    find_python >/dev/null || packages+=(python3 python3-venv)
}

want_cross() {
    links aarch64-linux-gnu-gcc 2>/dev/null || packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    links arm-linux-gnueabihf-gcc 2>/dev/null || packages+=(gcc-arm-linux-gnueabihf libc6-dev-armhf-cross)
}

want_qemu() {
    have qemu-aarch64-static && have qemu-arm-static || packages+=(qemu-user-static)
}

want_container() {
    need debootstrap have debootstrap
    need systemd-container have systemd-nspawn
}

install_packages() {
    [ ${#packages[@]} -gt 0 ] || return 0
    have apt-get || fail "please install (Debian's names): ${packages[*]}"
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || fail "not root and no sudo; please run as root: apt-get install ${packages[*]}"
        root=(sudo)
        [ -t 0 ] || root=(sudo -n)
    fi
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    say "installing ${packages[*]}"
    "${apt[@]}" update </dev/null >&2
    "${apt[@]}" install -y --no-install-recommends "${packages[@]}" </dev/null >&2 ||
        fail "apt-get could not install: ${packages[*]}"
}

make_venv() {
    local wanted=tests/requirements.txt stamp=target/venv/requirements.txt python
    if cmp -s "$wanted" "$stamp" && target/venv/bin/python -c 'import pymongo, pymodbus, serial' 2>/dev/null; then
        return 0
    fi
    python=$(find_python) || fail "no Python 3.10 to 3.13 with venv found (Debian: python3 python3-venv)"
    say "making target/venv with $($python -V)"
    rm -rf target/venv
    "$python" -m venv target/venv
    target/venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$wanted" </dev/null >&2
    cp "$wanted" "$stamp"
}

add_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    have rustup || fail "rustfmt or clippy is missing: install them beside your Rust toolchain"
    rustup component add rustfmt clippy >&2
}

add_rust_targets() {
    local target sysroot
    sysroot=$(rustc --print sysroot)
    for target in "${ARM_TARGETS[@]}"; do
        compgen -G "$sysroot/lib/rustlib/$target/lib/libstd-*.rlib" >/dev/null && continue
        have rustup || fail "Rust's standard library for $target is missing and there is no rustup to add it"
        say "adding Rust target $target"
        rustup target add "$target" >&2
    done
}

# A light build: it runs for seconds, so optimising it for minutes does not pay.
build_deny() {
    [ "$(target/tools/bin/cargo-deny --version 2>/dev/null)" != "cargo-deny $DENY_VERSION" ] || return 0
    say "building cargo-deny $DENY_VERSION into target/tools"
    env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --locked --quiet --root target/tools "cargo-deny@$DENY_VERSION" >&2
}

build_fuzz() {
    cargo +nightly --version >/dev/null 2>&1 || fail "fuzzing needs a nightly toolchain: rustup toolchain install nightly"
    [ "$(target/tools/bin/cargo-fuzz --version 2>/dev/null)" != "cargo-fuzz $FUZZ_VERSION" ] || return 0
    say "building cargo-fuzz $FUZZ_VERSION into target/tools"
    cargo install --locked --quiet --root target/tools "cargo-fuzz@$FUZZ_VERSION" >&2
}

case "${1:-test}" in
    build) want_build; install_packages ;;
    lint) want_build; install_packages; add_components; build_deny ;;
    fuzz) want_build; install_packages; build_fuzz ;;
    test) want_build; want_test; install_packages; make_venv ;;
    cross) want_build; want_cross; install_packages; add_rust_targets ;;
    arm)
        want_build; want_test; want_cross; want_qemu
        install_packages; make_venv; add_rust_targets
        ;;
    systemd) want_build; want_container; install_packages ;;
    *) fail "usage: setup-test.sh [build|lint|fuzz|test|cross|arm|systemd]" ;;
esac
