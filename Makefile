# Every target sets up what it needs, from nothing: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Threads are pinned so that results and timings do not depend on how many cores a machine has.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-fast check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[torch,service,dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/python -m demo

# Two processes: half of the tests' time is waiting for other processes. A file stays together, it shares its servers.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST)

test-fast: setup
	$(PYTEST) -m "not slow"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests bench demo
	$(BIN)/lint-imports
	$(BIN)/shardkeep-service migrate --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python -m bench.metadata
	$(BIN)/python -m bench.throughput

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
