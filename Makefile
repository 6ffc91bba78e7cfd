# The commands a newcomer needs. Everything but the set-up is cargo underneath:
# read `cargo xtask help` for the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# rustup installs here; a shell opened before that does not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# How long `make fuzz` gives each target.
FUZZ_SECONDS ?= 60

# Where `make install` puts the binary.
PREFIX ?= $(HOME)/.local

.PHONY: setup build install dist demo test lint fuzz clean help

help:
	@echo 'make setup   install what is missing (silent where nothing is)'
	@echo 'make build   release build of the longhaul binary'
	@echo 'make install that binary without debug information, in PREFIX/bin ($(PREFIX)/bin)'
	@echo 'make dist    static binaries for x86-64 and arm64, in target/dist'
	@echo 'make demo    copy a real tree over TLS across an emulated wide area, and verify it'
	@echo 'make test    all tests; ends with what failed and what was skipped'
	@echo 'make lint    format, clippy, tidy'
	@echo 'make fuzz    every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) seconds'
	@echo 'make clean   remove what was built'

setup:
	@scripts/setup

build: setup
	cargo build --locked --release --package longhaul

install: build
	@scripts/install target/release/longhaul "$(PREFIX)/bin"

dist: setup
	@scripts/dist

demo: setup
	cargo build --locked --profile demo --package longhaul
	cargo xtask demo

test: setup
	cargo xtask test

lint: setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo xtask tidy

fuzz: setup
	cargo xtask fuzz --all --seconds $(FUZZ_SECONDS)

clean:
	cargo clean
	rm -rf fuzz/target fuzz/artifacts
