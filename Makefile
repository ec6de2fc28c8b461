# Everything a contributor runs. Each target sets up the environment it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.PHONY: demo setup format check test test-gpu golden docs bench clean

demo: $(INSTALLED)  ## walk through the whole job on the demo model
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/walkthrough.sh

setup: $(INSTALLED)  ## make .venv with everything, pinned

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

format: $(INSTALLED)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(INSTALLED)  ## everything but the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m inkling_cli.docs --check
	env -u TRITON_INTERPRET $(BIN)/python -m inkling_runtime.ops.kernels.compile_all

test: $(INSTALLED)  ## all tests that need no GPU
	$(BIN)/pytest

test-gpu: $(INSTALLED)  ## the tests that need a GPU; fails without one
	TRITON_INTERPRET=0 $(BIN)/pytest -m gpu --require-gpu

golden: $(INSTALLED)  ## rewrite the golden files: of the command line, of the rules' messages
	$(BIN)/pytest tests/cli tests/checks/test_rule_messages.py --golden-update

docs: $(INSTALLED)  ## regenerate docs/rules.md and docs/cli.md
	$(BIN)/python -m inkling_cli.docs

bench: $(INSTALLED)  ## run the benchmarks
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
