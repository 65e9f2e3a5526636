# The one entrance: set up, build, run, test, install. `make help` lists the targets, from the `##` behind each.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Cargo parallelises by itself; two cargos at a time would only wait for each other's lock.
.NOTPARALLEL:

# Port of the server that `make run` starts.
PORT ?= 6379
# The server to run and to test against: a name or a path; also a Valkey.
export REDIS_SERVER ?= redis-server
# Where `make install` puts the module: $(PREFIX)/lib/redis/modules, under DESTDIR if given.
PREFIX ?= /usr/local
DESTDIR ?=

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# Last, and so only if there is nothing else: a cargo that rustup has just put there, the server link of scripts/setup.
export PATH := $(PATH):$(HOME)/.cargo/bin:$(CARGO_TARGET_DIR)/bin

SO := $(CARGO_TARGET_DIR)/release/libredis_bloom.so
PURE := --no-default-features
# In CI the committed Cargo.lock must be the one that the build uses.
LOCKED := $(if $(CI),--locked)

##@ Use

.PHONY: help
help: ## List the targets and the settings
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nSettings\n  PORT=%s  REDIS_SERVER=%s  PREFIX=%s  DESTDIR=%s\n' \
		'$(PORT)' '$(REDIS_SERVER)' '$(PREFIX)' '$(DESTDIR)'

.PHONY: setup
setup: ## Install what is missing on this machine (Debian packages, as root or with sudo)
	@scripts/setup

.PHONY: build
build: setup ## Build the module: target/release/libredis_bloom.so
	cargo build --release --lib $(LOCKED)

.PHONY: run
run: build ## Start a Redis server with the module on 127.0.0.1:PORT; its data goes to target/run
	@mkdir -p "$(CARGO_TARGET_DIR)/run"
	@cp redis.conf.example "$(CARGO_TARGET_DIR)/run/redis.conf"
	exec "$(REDIS_SERVER)" "$(CARGO_TARGET_DIR)/run/redis.conf" --loadmodule "$$(realpath "$(SO)")" \
		--bind 127.0.0.1 --port $(PORT) --daemonize no --dir "$(CARGO_TARGET_DIR)/run"

.PHONY: install
install: ## Install the built module to PREFIX/lib/redis/modules
	@test -f "$(SO)" || { echo 'There is no module yet: run make build first.' >&2; exit 1; }
	install -D -m 0755 "$(SO)" "$(DESTDIR)$(PREFIX)/lib/redis/modules/libredis_bloom.so"
	@echo 'For redis.conf: loadmodule $(PREFIX)/lib/redis/modules/libredis_bloom.so'

.PHONY: clean
clean: ## Remove everything that was built, and the data of make run
	cargo clean

##@ Test

.PHONY: test
test: fmt-check lint check-pure test-pure test-server doc ## Everything that a change must pass

.PHONY: fmt-check
fmt-check: setup ## The formatting
	cargo fmt --check

.PHONY: lint
lint: setup ## Clippy, no warnings, with and without the module
	cargo clippy --all-targets $(LOCKED) -- -D warnings
	cargo clippy --all-targets $(PURE) $(LOCKED) -- -D warnings

.PHONY: check-pure
check-pure: setup ## The filter and its codecs build without a server
	cargo check $(PURE) $(LOCKED)

.PHONY: test-pure
test-pure: setup ## Unit and property tests of the filter and its codecs
	cargo test $(PURE) $(LOCKED)

.PHONY: test-server
test-server: build ## Black-box tests of the release build in a real server
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" cargo test --test server $(LOCKED) -- --show-output

.PHONY: doc
doc: setup ## The API documentation, no warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps $(LOCKED)

##@ Change

.PHONY: fmt
fmt: setup ## Format the code
	cargo fmt
