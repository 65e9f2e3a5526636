# Sets up, builds, runs, tests and installs. `make help` and `make help-all` list the
# targets, from the `##` after each.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Cargo runs in parallel itself; two cargos would only wait for each other's lock.
.NOTPARALLEL:

# Port of the server that `make run` starts.
PORT ?= 6379
# The server to run and to test against: a name or a path of a Redis or Valkey.
export REDIS_SERVER ?= redis-server
# `make install` puts the module into $(PREFIX)/lib/redis/modules and the tool into $(PREFIX)/bin,
# below DESTDIR if given.
PREFIX ?= /usr/local
DESTDIR ?=

# Parts of the bench to run, all but billion if empty: commands, clients, packed, shards, windows, duplicates,
# persistence, merge, tool, growing, instructions, in-process, billion.
BENCH ?=
# Other modules for the bench: name=path.so[,argument...] ...
export PEERS ?=
# Settings of `make compare`: the commit to compare with this tree; the filters (2M 2M-0.1% 2M-0.01%
# 100M), all if empty; the number of rounds. COUNT=1 counts instructions in place of time.
REV ?=
CASE ?=
ROUNDS ?= 31
COUNT ?=

# Absolute, because cargo starts a bench in the directory of its package.
override CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
export CARGO_TARGET_DIR
# Last in PATH, so used only if there is no other: a cargo that rustup has just installed, and the
# server link of scripts/setup.
export PATH := $(PATH):$(HOME)/.cargo/bin:$(CARGO_TARGET_DIR)/bin

# Where cargo puts what it builds: scripts/cross sets CARGO_BUILD_TARGET.
BUILT := $(CARGO_TARGET_DIR)$(addprefix /,$(CARGO_BUILD_TARGET))
SO := $(BUILT)/release/libredis_bloom.so
RUN := $(CARGO_TARGET_DIR)/run/$(PORT)
TOOL := $(BUILT)/cli/redis-bloom
FLOOR := $(CARGO_TARGET_DIR)/release/examples/libfloor.so
PURE := --no-default-features
# Not the manifest: it names a package that only scripts/compare makes.
COMPARE_RS := benches/compare/src/main.rs
# Modules that a macro declares (src/module/commands/mod.rs): cargo fmt does not find them.
MACRO_RS := $(wildcard src/module/commands/*.rs)
# Seconds that `make fuzz` runs each fuzzer; `make soak` and `make soak-load` run an hour if this is not given.
SECONDS ?= 60
# Servers of `make test-matrix`: suite/kind of Debian's or paths; all of Debian's if empty.
SERVERS ?=
# `no`: the targets install nothing; they say what is missing, and fail.
export SETUP ?=
# If set, targets that run tests on platforms and servers write their results into docs/internals/platforms.md.
export RECORD ?=
# The tests of server and tool wait more than they compute. So two run at once for each processor, but at most 8.
AT_ONCE := RUST_TEST_THREADS="$${RUST_TEST_THREADS:-$$(($$(nproc) > 4 ? 8 : 2 * $$(nproc)))}"
# In CI the build must use the committed Cargo.lock.
LOCKED := $(if $(CI),--locked)

##@ Use

# What most people need; make help-all has the rest.
COMMON := build cli run install check test fmt docs bench release

.PHONY: help
help: ## List the common targets
	@awk -v common=' $(COMMON) ' 'BEGIN { FS = ":.*## " } \
		/^[a-z0-9-]+:.*## / && index(common, " " $$1 " ") { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'make help-all   List all targets, and the settings'

.PHONY: help-all
help-all: ## List all targets, and the settings
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nSettings\n  PORT=%s  REDIS_SERVER=%s  PREFIX=%s  DESTDIR=%s  BENCH=%s  PEERS=%s  SECONDS=%s\n' \
		'$(PORT)' '$(REDIS_SERVER)' '$(PREFIX)' '$(DESTDIR)' '$(BENCH)' '$(PEERS)' '$(SECONDS)'
	@printf '  REV=%s  CASE=%s  ROUNDS=%s  COUNT=%s  SERVERS=%s  RECORD=%s\n' \
		'$(REV)' '$(CASE)' '$(ROUNDS)' '$(COUNT)' '$(SERVERS)' '$(RECORD)'
	@printf '  %s\n' 'SETUP=no: install nothing, and print what is missing' \
		'RECORD=1: write results into docs/internals/platforms.md: of test-matrix, test-arm64, test-s390x, test-msrv,' \
		'test-packages-arm64, memcheck, asan and soak'

.PHONY: setup
setup: ## Install missing Debian packages (as root or with sudo); each target installs its own, too
	@scripts/setup server tests clients packages monitoring containers fuzz site

.PHONY: build
build: ## Build the module: target/release/libredis_bloom.so
	@scripts/setup
	cargo build --release --lib $(LOCKED)

.PHONY: cli
cli: ## Build the tool: target/cli/redis-bloom, its manual page and completions
	@scripts/setup
	cargo build --profile cli --package redis-bloom-cli $(LOCKED)
	scripts/tool-pages

.PHONY: docs
docs: ## Build the documents as a site: target/site/html (mdBook from crates.io, the calculator as WebAssembly)
	@scripts/setup
	scripts/site

.PHONY: run
run: build ## Start a Redis server with the module on 127.0.0.1:PORT; its files are in target/run/PORT
	@scripts/setup server
	@mkdir -p "$(RUN)"
	@test -e "$(RUN)/redis.conf" || cp redis.conf.example "$(RUN)/redis.conf"
	@echo 'Try, in another terminal:'
	@echo '  redis-cli -p $(PORT) BF.INSERT urls CAPACITY 1000000 ERROR 0.001 ITEMS /home /about'
	@echo '  redis-cli -p $(PORT) BF.INSERT seen CAPACITY 1000000 WINDOW EX 60 ITEMS alice bob   # forgotten in 75 seconds at most'
	@# CONFIG REWRITE adds a loadmodule line to that file, and a second one here would be an error.
	@load=(--loadmodule "$$(realpath "$(SO)")"); \
	if grep -qi '^[[:space:]]*loadmodule[[:space:]].*libredis_bloom' "$(RUN)/redis.conf"; \
	then load=(); fi; \
	exec "$(REDIS_SERVER)" "$(RUN)/redis.conf" "$${load[@]}" \
		--bind 127.0.0.1 --port $(PORT) --daemonize no --dir "$(RUN)"

.PHONY: install
install: ## Install what is built: the module to PREFIX/lib/redis/modules, the tool to PREFIX/bin
	@test -f "$(SO)" || { echo 'The module is not built: run make build first.' >&2; exit 1; }
	install -D -m 0755 "$(SO)" "$(DESTDIR)$(PREFIX)/lib/redis/modules/libredis_bloom.so"
	@if [ -e "$(TOOL)" ]; then scripts/tool-files "$(DESTDIR)$(PREFIX)"; fi
	@echo 'For redis.conf: loadmodule $(PREFIX)/lib/redis/modules/libredis_bloom.so'
	@echo "Debian's redis-server.service loads modules only from below /usr/lib: for it, install with PREFIX=/usr."

.PHONY: clean
clean: ## Remove everything that was built, and the data of make run
	cargo clean
	rm -rf tests/clients/node/node_modules tests/site/node_modules clients/node/node_modules

##@ Test

# In this order: what fails soonest comes first.
TEST := fmt-check lint test-lints test-tally test-platform test-release check-registers build-tests test-at-once

.PHONY: test
test: ## All checks that a change must pass; lists the skipped tests at the end
	@scripts/tally 'make test' $(MAKE) --no-print-directory $(TEST)

.PHONY: check
check: ## Formatting, lints and the quick tests in Rust, in some four minutes
	@scripts/tally 'make check' $(MAKE) --no-print-directory fmt-check lint test-quick

.PHONY: fmt-check
fmt-check: ## Check the formatting
	@scripts/setup
	cargo fmt --check --all
	rustfmt --check $(MACRO_RS)
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	rustfmt --check $(COMPARE_RS)

.PHONY: lint
lint: ## Clippy, no warnings, with and without the module; long lines; links of the documents
	@scripts/setup
	@scripts/long-lines
	@scripts/long-tests tests/filter tests/codec tests/server cli/tests/tool examples/sizing >/dev/null
	@scripts/test-check-links
	@scripts/check-links .
	@scripts/site-summary . >/dev/null
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings
	cargo clippy --lib --package redis-bloom --package redis-bloom-calculator $(PURE) $(LOCKED) -- -D warnings
	scripts/compare --lint

.PHONY: test-lints
test-lints: ## Check that clippy refuses code that can panic
	@scripts/setup
	@scripts/test-lints

.PHONY: test-tally
test-tally: ## Check that skipped tests are not counted as passed
	@scripts/test-tally

.PHONY: test-platform
test-platform: ## Check how results are written into docs/internals/platforms.md
	@scripts/test-platform

# crc32fast is left out: it uses them for items of 2 KiB and more, on processors with VPCLMULQDQ alone.
.PHONY: check-registers
check-registers: build ## Check that the module uses no 512-bit registers (see src/filter/layer/blocked/simd.rs)
	@objdump -d "$(SO)" | awk '/>:$$/ { ours = !/crc32fast/ } /zmm/ && ours { found = 1; print } END { exit found || NR < 10000 }'

.PHONY: test-pure
test-pure: ## Unit and property tests of the filter and its codecs; those of batches also in the scalar code
	@scripts/setup tests
	cargo test $(PURE) $(LOCKED)
	REDIS_BLOOM_PORTABLE=1 cargo test $(PURE) --test filter $(LOCKED) -- batch:: merge:: mixed:: model:: pages::

# What most tests run is built before. The clients, fuzzers, packages and doc are built beside the tests.
.PHONY: build-tests
build-tests: build cli ## Build what test-pure, test-server and test-cli run
	@scripts/setup tests clients monitoring packages fuzz
	cargo test $(PURE) $(LOCKED) --no-run
	$(SERVER_TESTS) --no-run
	$(CLI_TESTS) --no-run

.PHONY: test-at-once
test-at-once: ## Tests that compute, with a low priority, beside those that mostly wait
	scripts/at-once test-computing test-waiting

.PHONY: test-computing
test-computing: ## test-pure, test-fuzz and test-huge with a low priority
	nice -n 15 $(MAKE) --no-print-directory test-pure test-fuzz test-huge

# The guards of test-clients have timeouts of 0.1 s: only tests of a low priority run beside it.
.PHONY: test-waiting
test-waiting: build ## build-clients, then test-cli and test-monitoring at the same time, then test-server, test-clients and test-deployed
	@scripts/setup tests clients monitoring
	@$(MAKE) --no-print-directory build-clients
	scripts/at-once test-cli test-monitoring
	@$(MAKE) --no-print-directory test-server test-clients test-deployed

# The tests compute little, and the module is the release build: optimizing them takes longer than they gain.
SERVER_TESTS := CARGO_PROFILE_TEST_OPT_LEVEL=0 REDIS_BLOOM_SO="$$(realpath "$(SO)")" cargo test --test server $(LOCKED)

.PHONY: test-server
test-server: build ## Tests of the release build in a real server
	@scripts/setup tests
	$(AT_ONCE) $(SERVER_TESTS) -- --show-output

CLI_TESTS := REDIS_BLOOM_SO="$$(realpath "$(SO)")" $(AT_ONCE) cargo test --profile cli --package redis-bloom-cli $(LOCKED)

.PHONY: test-cli
test-cli: build ## Tests of the tool against real servers
	@scripts/setup tests
	$(CLI_TESTS) -- --show-output

.PHONY: test-quick
test-quick: build ## The tests of test-pure, test-server and test-cli without the long ones
	@scripts/setup tests
	skip=$$(scripts/long-tests tests/filter tests/codec examples/sizing); \
		cargo test $(PURE) $(LOCKED) -- $$skip
	skip=$$(scripts/long-tests tests/server); \
		$(AT_ONCE) $(SERVER_TESTS) -- $$skip
	skip=$$(scripts/long-tests cli/tests/tool); \
		$(CLI_TESTS) -- $$skip
	@echo "The $$(grep -vc '^#' tests/long) tests of tests/long were left out: make test runs them."

.PHONY: test-huge
test-huge: build ## Sparse filters of 13 and 64 GiB, if the kernel overcommits memory
	@if [ "$$(cat /proc/sys/vm/overcommit_memory)" = 2 ]; then \
		echo 'SKIPPED: filters of 13 and 64 GiB need a kernel that overcommits, and vm.overcommit_memory is 2'; \
	elif [ "$$(awk '/^MemTotal/ { print int($$2 / 1048576) }' /proc/meminfo)" -lt 14 ]; then \
		echo 'SKIPPED: a kernel lends 13 GiB to one process only where there are as many'; \
	else \
		cargo test --test filter $(PURE) $(LOCKED) -- --ignored --show-output; \
		$(SERVER_TESTS) -- --ignored --show-output; \
	fi

.PHONY: test-clients
test-clients: build ## Real clients against a live server: redis-py, hiredis, redis-cli, node-redis, redis-rs, phpredis, redigo, Java
	@scripts/setup clients
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" scripts/test-clients

.PHONY: build-clients
build-clients: build ## Check and build the libraries and all that test-clients runs
	@scripts/setup clients
	scripts/test-clients build

.PHONY: test-monitoring
test-monitoring: build cli ## docs/guide/incidents.md, and contrib/monitoring with Debian's prometheus-redis-exporter and Prometheus
	@scripts/setup monitoring
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" REDIS_BLOOM_TOOL="$$(realpath "$(TOOL)")" scripts/test-monitoring

.PHONY: test-contrib
test-contrib: build ## contrib/ansible on a server of its own, and the files of contrib/docker/compose.yml
	@scripts/setup server clients monitoring
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" scripts/test-contrib

.PHONY: test-docker
test-docker: build cli ## The lines of docs/guide/docker.md and contrib/docker/README.md, with podman in the place of docker (as root)
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" REDIS_BLOOM_TOOL="$$(realpath "$(TOOL)")" scripts/test-docker

# What all need is installed and built before.
.PHONY: test-deployed
test-deployed: build cli ## test-contrib, test-docker, test-packages and doc at the same time
	@scripts/setup server clients monitoring packages
	@if [ "$$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then scripts/setup containers; fi
	scripts/at-once test-contrib test-docker test-packages doc

# Not part of make test: the first run compiles mdBook, and a toolchain for WebAssembly.
.PHONY: test-docs
test-docs: docs cli ## The site in headless Chromium: links, pictures, width, search, and the calculator against the tool
	@scripts/setup site
	REDIS_BLOOM_TOOL="$$(realpath "$(TOOL)")" scripts/test-site

.PHONY: fuzz
fuzz: ## Run every fuzzer for SECONDS, with fresh inputs
	@scripts/setup fuzz
	@scripts/fuzz $(SECONDS)

.PHONY: test-fuzz
test-fuzz: ## Run every fuzzer a fixed number of times, with the same inputs each time
	@scripts/setup fuzz
	@scripts/fuzz fixed

.PHONY: memcheck
memcheck: build ## Server tests in valgrind: invalid reads and writes, leaks
	@scripts/setup tests memcheck
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" scripts/memcheck

.PHONY: asan
asan: ## Server tests of a module that AddressSanitizer watches
	@scripts/setup tests
	scripts/asan

.PHONY: soak
soak: build ## A cluster under load and faults for an hour, or SECONDS, with an exact model
	@scripts/setup clients
	@REDIS_BLOOM_SO="$$(realpath "$(SO)")" scripts/soak "$(if $(filter-out file,$(origin SECONDS)),$(SECONDS),3600)" $(SEED)

.PHONY: soak-load
soak-load: build ## The tool's load under faults for an hour, or SECONDS, or ROUNDS from SEED on, with a model
	@scripts/setup tests
	LOAD_MODEL_SEED="$(or $(SEED),$(shell date +%s))" \
		LOAD_MODEL_ROUNDS="$(if $(filter-out file,$(origin ROUNDS)),$(ROUNDS))" \
		LOAD_MODEL_SECONDS="$(if $(filter-out file,$(origin SECONDS)),$(SECONDS),3600)" \
		REDIS_BLOOM_SO="$$(realpath "$(SO)")" cargo test --profile cli --package redis-bloom-cli --test tool $(LOCKED) -- \
		--show-output load_model

.PHONY: miri
miri: ## Tests of the pure half in Miri, also for a big-endian machine (needs a nightly toolchain with Miri)
	@scripts/setup
	@scripts/miri

.PHONY: test-matrix
test-matrix: build cli ## The tests in the Redis and Valkey of Debian 12, 13, testing and experimental, or SERVERS
	@scripts/setup tests clients
	scripts/test-unpack-server
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" REDIS_BLOOM_TOOL="$$(realpath "$(TOOL)")" scripts/test-matrix $(SERVERS)

.PHONY: test-arm64
test-arm64: build ## Tests on arm64 in qemu, with Debian testing's Rust and servers
	@scripts/setup tests cross
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" scripts/test-cross arm64

.PHONY: test-s390x
test-s390x: ## The pure tests on s390x, which is big-endian, in qemu
	@scripts/setup tests s390x
	scripts/test-cross s390x

.PHONY: test-msrv
test-msrv: ## Build with the rust-version of Cargo.toml, which must be the active toolchain or one of rustup
	@scripts/setup
	@scripts/test-msrv

.PHONY: test-packages
test-packages: packages ## Install the packages and the tarball into empty directories, and load the module from there
	@scripts/setup packages server
	scripts/test-packages "$(CARGO_TARGET_DIR)"/debian/*.deb "$(CARGO_TARGET_DIR)"/rpm/*.rpm "$(CARGO_TARGET_DIR)"/dist/*.tar.gz

.PHONY: test-packages-arm64
test-packages-arm64: packages-arm64 ## Do what test-packages does for arm64, with Debian testing's server for arm64, in qemu
	server=$$(scripts/unpack-server testing redis arm64); \
		version=$$(scripts/server-version "$$server"); \
		log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
		REDIS_SERVER="$$server" scripts/cross arm64 $(MAKE) --no-print-directory test-packages | tee "$$log"; \
		if grep -q '^SKIPPED' "$$log"; then result='passed but for what needs root'; else result=passed; fi; \
		scripts/platform 'Linux arm64, in qemu' "$$version" 'make test-packages-arm64' "$$result"

.PHONY: test-release
test-release: ## Check what make release refuses, and that other settings do not change the packages
	@scripts/setup packages
	@scripts/test-release

.PHONY: doc
doc: ## Build the API documentation, no warnings
	@scripts/setup
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps $(LOCKED)

##@ Measure

.PHONY: bench
bench: build ## Measure, with PEERS if given; writes docs/internals/benchmarks.md and the pages of its parts
	@scripts/setup bench
	cargo build --release --example floor $(LOCKED)
	@if [[ "$(or $(BENCH),in-process)" == *in-process* ]]; then cargo bench -p redis-bloom-benches --bench filter $(LOCKED); fi
	@if [[ "$(or $(BENCH),tool)" == *tool* ]]; then $(MAKE) --no-print-directory cli; fi
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" FLOOR_SO="$$(realpath "$(FLOOR)")" REDIS_BLOOM_TOOL="$(TOOL)" \
		cargo bench -p redis-bloom-benches --bench suite $(LOCKED) -- $(BENCH)

.PHONY: pictures
pictures: build ## Run the tool in a terminal, and write docs/pictures/cli-*.svg
	@scripts/setup tests
	REDIS_BLOOM_SO="$$(realpath "$(SO)")" cargo test --profile cli --package redis-bloom-cli --test tool $(LOCKED) -- --ignored pictures

.PHONY: compare
compare: ## Compare the pure filter of commit REV with that of this tree: CASE, ROUNDS, COUNT=1
	@scripts/setup compare $(if $(COUNT),count)
	@ROUNDS="$(ROUNDS)" COUNT="$(COUNT)" scripts/compare "$(REV)" $(CASE)

##@ Release

.PHONY: dist
dist: build cli ## The tarball with module, tool, documents, licences and checksums, in target/dist
	@scripts/dist

.PHONY: deb
deb: dist ## The Debian package redis-module-bloom with module and tool, in target/debian
	@scripts/deb

.PHONY: rpm
rpm: dist ## The RPM package redis-module-bloom with module and tool, in target/rpm
	@scripts/setup packages
	@scripts/rpm

.PHONY: packages
packages: deb rpm ## The tarball and both packages

.PHONY: client-packages
client-packages: ## The libraries for Python, JavaScript and Rust as packages, in target/client-packages
	@scripts/setup client-packages
	@scripts/client-packages

.PHONY: packages-arm64
packages-arm64: ## The tarball and both packages for arm64, in target/cross/build/{dist,debian,rpm}
	@scripts/setup cross packages
	scripts/cross arm64 $(MAKE) --no-print-directory packages

.PHONY: release
release: ## The files of a release in target/release-VERSION, built twice and compared; REHEARSE=1 before it is ready
	@scripts/release $(if $(REHEARSE),--rehearse)

##@ Change

.PHONY: fmt
fmt: ## Format the code
	@scripts/setup
	cargo fmt --all
	rustfmt $(MACRO_RS)
	cargo fmt --manifest-path fuzz/Cargo.toml
	rustfmt $(COMPARE_RS)
