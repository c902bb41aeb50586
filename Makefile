# Each target does its own set-up; `make help` lists them. Debian packages are installed where they are missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ARM_TARGETS := aarch64-unknown-linux-gnu armv7-unknown-linux-gnueabihf
# The largest release binary that is acceptable, in bytes: a Pi fetches it over a mobile link.
MAX_BINARY := 12582912

# How long each fuzz target runs.
FUZZ_SECONDS ?= 30

PREFIX ?= /usr
DESTDIR ?=
BINARY ?= target/release/tipbucket

.PHONY: help test cut-drill flip-drill kill-drill ext4-drill upstream-drill store-file lint cross test-arm test-systemd demo release bench fuzz-check fuzz install fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

test: ## set up and run every test
	scripts/setup-test.sh test
	cargo test --locked --workspace

# As many as a night allows: CUTS=100000 takes about half an hour on two cores.
CUTS ?= 20000
cut-drill: ## cut the power CUTS times under the store, and look at what is left
	scripts/setup-test.sh build
	TIPBUCKET_CUTS=$(CUTS) cargo test --locked --test store cuts -- --nocapture

FLIPS ?= 10000
flip-drill: ## flip FLIPS bits of a store, one at a time, and look at what is left
	scripts/setup-test.sh build
	TIPBUCKET_FLIPS=$(FLIPS) cargo test --locked --test store flips -- --nocapture

KILLS ?= 2000
kill-drill: ## kill a writer under load KILLS times, and look at what is left
	scripts/setup-test.sh build
	TIPBUCKET_KILLS=$(KILLS) cargo test --locked --test drill

EXT4_CUTS ?= 300
ext4-drill: ## shut a private ext4 down under a writer, or let it find an error, EXT4_CUTS times, and look at what is left (needs root)
	scripts/setup-test.sh build
	TIPBUCKET_EXT4_CUTS=$(EXT4_CUTS) cargo test --locked --test drill

BUCKETS ?= 1000
upstream-drill: ## deliver BUCKETS buckets through a network that cuts and swallows, killed again and again, and look at what is there
	scripts/setup-test.sh test
	TIPBUCKET_UPSTREAM_BUCKETS=$(BUCKETS) cargo test --locked --test it upstream::storm -- --nocapture

store-file: ## before a release with a new schema: write the database file that later releases must be able to read
	scripts/setup-test.sh build
	TIPBUCKET_WRITE_STORE=1 cargo test --locked --test store files

lint: ## formatting, clippy, documentation, licences and advisories
	scripts/setup-test.sh lint
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
	scripts/check-dependencies.sh

cross: ## release binaries for 64- and 32-bit ARM
	scripts/setup-test.sh cross
	for target in $(ARM_TARGETS); do \
	    cargo build --locked --release --bin tipbucket --target "$$target"; \
	done
	scripts/check-size.sh $(MAX_BINARY) $(ARM_TARGETS:%=target/%/release/tipbucket)

# Generated cases are fewer there: they look for errors of logic, which the native run finds; emulation looks for those of
# word size, alignment and byte order. Full disks (`room`) are the kernel's affair, and long quarrels with a network are
# nobody's on one processor rather than another; emulation needs many minutes for either.
NOT_EMULATED := --skip serial --skip store::tests::room --skip upstream::storm --skip upstream::killed --skip upstream::tls \
    --skip upstream::live --skip upstream::append
test-arm: export PROPTEST_CASES ?= 32
test-arm: export TIPBUCKET_CUTS ?= 60
test-arm: export TIPBUCKET_FLIPS ?= 60
test-arm: export TIPBUCKET_KILLS ?= 10
test-arm: ## the suite without serial ports, emulated on both ARM targets (qemu-user has no terminals)
	scripts/setup-test.sh arm
	TIPBUCKET_TEST_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
	    cargo test --locked --target aarch64-unknown-linux-gnu --workspace --lib --bins --tests -- $(NOT_EMULATED)
	TIPBUCKET_TEST_RUNNER="qemu-arm-static -L /usr/arm-linux-gnueabihf" \
	    cargo test --locked --target armv7-unknown-linux-gnueabihf --workspace --lib --bins --tests -- $(NOT_EMULATED)

test-systemd: release ## the unit under a real systemd, in a container that boots (needs root, not part of `test`)
	scripts/setup-test.sh systemd
	scripts/test-systemd.sh $(BINARY)

demo: ## a simulated greenhouse on real terminals, for a look around (MONGODB_URI=… to send to a database)
	scripts/setup-test.sh build
	scripts/demo.sh

release: ## a release binary for this machine
	scripts/setup-test.sh build
	cargo build --locked --release --bin tipbucket
	scripts/check-sync.sh target/release/tipbucket

bench: ## measure speed and memory (some ten minutes; docs/BENCHMARKS.md)
	scripts/setup-test.sh test
	cargo bench --locked --bench '*'

# Not part of `lint`: without what is built already it takes two minutes (measured: 114 s on two cores), and 4 s with it.
fuzz-check: ## see whether every fuzz target still compiles, on the stable toolchain
	scripts/setup-test.sh build
	scripts/fuzz.sh --check

fuzz: ## random inputs through every decoder, FUZZ_SECONDS for each (needs a nightly toolchain)
	scripts/setup-test.sh fuzz
	scripts/fuzz.sh $(FUZZ_SECONDS)

install: ## put BINARY, the unit and a first site file in place (DESTDIR and PREFIX as usual)
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/tipbucket
	install -D -m 0644 systemd/tipbucket.service $(DESTDIR)$(PREFIX)/lib/systemd/system/tipbucket.service
	install -D -m 0644 systemd/tipbucket.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/tipbucket.conf
	[ -e $(DESTDIR)/etc/tipbucket/site.toml ] || \
	    install -D -m 0640 config/tipbucket.toml $(DESTDIR)/etc/tipbucket/site.toml
	[ -n "$(DESTDIR)" ] || { systemd-sysusers tipbucket.conf; chgrp tipbucket /etc/tipbucket/site.toml; }
	@echo "now edit $(DESTDIR)/etc/tipbucket/site.toml (it names no source yet), then: tipbucket check"

fmt: ## format the code
	cargo fmt

clean: ## remove everything that was built
	cargo clean
