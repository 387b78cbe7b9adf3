# What can be done with Drover: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## Shows this.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.PHONY: setup
setup: $(READY) ## Creates .venv from requirements.lock and installs Drover into it.

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Drover needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 \
	  || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "Python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes --prefer-binary --use-pep517 -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: setup ## Runs a whole stack and one agent session on real data; TASK="..." for a task of yours.
	@$(BIN)/drover demo $${TASK:+--task "$$TASK"}

# Hundreds of interpreters run the same modules: each is compiled once, whatever the shell says.
.PHONY: test
test: setup ## Runs the whole test suite; ARGS="..." goes to pytest.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: soak
soak: setup ## Runs the fault and sandbox tests with their long runs in full, half an hour or more; ARGS="..." goes to pytest.
	DROVER_SOAK=1 $(BIN)/python -m pytest tests/fault tests/adversarial/sandbox \
		tests/contract/hands/test_tools.py tests/e2e/test_interrupts.py --verbose --durations=20 $(ARGS)

.PHONY: check lint types imports contract
check: lint types imports contract ## Lint, types, import rules and the contract.

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy --num-workers auto

imports: setup
	$(BIN)/lint-imports

contract: setup
	PYTHON=$(BIN)/python scripts/proto.sh lint
	PYTHON=$(BIN)/python scripts/proto.sh breaking
	PYTHON=$(BIN)/python scripts/proto.sh fresh

.PHONY: proto
proto: setup ## Regenerates proto/gen from the contract.
	PYTHON=$(BIN)/python scripts/proto.sh generate

.PHONY: bench
bench: setup ## Measures, as a table and as JSON in bench/results; ARGS="R1 R2" measures these alone.
	$(BIN)/python -m bench $(ARGS)

.PHONY: lock
lock: setup ## Compiles requirements.lock again from pyproject.toml, and of it the images'; ARGS="--upgrade" for new releases.
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --universal --python-version 3.11 --quiet $(ARGS) \
	  --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra bedrock --extra vertex --constraint requirements.lock \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --universal --python-version 3.11 \
	  --quiet --output-file deploy/images/requirements.lock

.PHONY: clean
clean: ## Removes what was built, but no data.
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
