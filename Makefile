# Everything runs in .venv. `make up` installs there what serving needs; every other target, what development needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
SERVING := $(VENV)/.serving-$(SUM)
STAMP := $(VENV)/.installed-$(SUM)
# Python compiles what it imports; compiling everything that is installed takes as long as unpacking it.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Python keeps what it has compiled, whatever the environment says: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# Two processes; one of them has all tests of a file, which share a host. tests/conftest.py says which files go first.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: up test coverage check bench hostile chaos fuzz cluster tck conform-sdk clean

up: $(or $(wildcard $(STAMP)),$(SERVING))
	$(BIN)/roost serve examples/fleet

test: check
	$(BIN)/python $(PYTEST)

# The same, with the coverage of the hosts; takes a third longer.
coverage: check
	$(BIN)/coverage erase
	COVERAGE_PROCESS_START=pyproject.toml $(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=93

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Requests that are made to cost others something, at every door; HOSTILE="--only gRPC".
hostile: $(STAMP)
	$(BIN)/python -m benchmarks.hostile $(HOSTILE)

# Three hosts on PostgreSQL (with and without NATS) and one on SQLite, under load and under attack; CHAOS="--kills 1000".
chaos: $(STAMP)
	$(BIN)/python -m chaos $(CHAOS)

# Requests that nobody should send, against an open and a closed host; FUZZ="--minutes 60".
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(FUZZ)

# PostgreSQL, NATS and three hosts of the example fleet, to try.
cluster: $(STAMP)
	$(BIN)/python -m tools.cluster

# Runs an A2A TCK (branch 1.0-dev) that is installed in TCK_DIR, with its own Python in TCK_PYTHON.
TCK_PYTHON ?= $(TCK_DIR)/.venv/bin/python
tck: $(STAMP)
	@test -n "$(TCK_DIR)" || { echo "give the folder of the kit: make tck TCK_DIR=..."; exit 2; }
	$(BIN)/python -m tests.tck "$(TCK_DIR)" "$(TCK_PYTHON)"

# Judges an unmodified server of a2a-sdk with `roost conform`, and writes docs/reports/a2a-sdk.md.
conform-sdk: $(STAMP)
	$(BIN)/python -m tools.conform_sdk

$(SERVING):
	@echo "Installing what serving needs into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -c constraints.txt -e .
	@rm -f $(VENV)/.serving-*
	@touch $@

$(STAMP):
	@echo "Installing what development needs into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -c constraints.txt -e '.[dev]'
	@# The durability tests compile a small library; where there is no compiler, one comes as a wheel.
	@command -v cc >/dev/null || $(INSTALL) ziglang==0.17.0
	@rm -f $(VENV)/.installed-*
	@touch $@

clean:
	rm -rf $(VENV) .roost .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
