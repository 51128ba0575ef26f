# The same verbs locally and in continuous integration. None needs an active virtual
# environment: each one makes .venv when it is missing or older than pyproject.toml.
#   make test ARGS="-k reclaim"     passes more arguments on

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

# -qq: only errors. A package location that does not exist is pip's to skip, not ours to report.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --root-user-action=ignore

# What differs between versions of Python: decisions, both stores, processes, forks, event loops.
SMOKE ?= tests/model tests/store/test_claim.py tests/worker/test_isolated.py \
  tests/worker/test_forks_and_threads.py tests/service/test_jobs.py tests/remote/test_worker.py \
  tests/integrations/django/test_cases.py

# Who starts thousands of processes does not have each of them compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test slow smoke lowest check bench verify mutants campaign seeds docs screenshots format clean

help: ## show the verbs
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(VENV)/.core ## kill workers and watch every job finish
	@$(BIN)/outlast demo $(ARGS)

test: $(VENV)/.dev ## run the tests, without the slow ones
	@$(BIN)/python -m tools.run_tests $(ARGS)

slow: $(VENV)/.dev ## run the slow tests: many kills, long matrices, whole sites
	@$(BIN)/python -m tools.run_tests --slow $(ARGS)

# On another Python, in an environment of its own: make smoke PYTHON=python3.13 VENV=.venv-newest
smoke: $(VENV)/.dev ## run a short choice of the tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(SMOKE) $(ARGS)

lowest: $(VENV)/.dev ## run tests with the lowest versions that are allowed
	@$(BIN)/python -m tools.lowest_versions $(ARGS)

check: $(VENV)/.dev ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.dev ## measure, side by side with others
	@$(BIN)/python -m benchmarks run $(ARGS)

verify: $(VENV)/.dev ## show that the promise holds
	@$(BIN)/outlast verify $(ARGS)

mutants: $(VENV)/.dev ## show that the campaigns notice a broken protocol
	@$(BIN)/python -m tools.mutants $(ARGS)

campaign: $(VENV)/.dev ## run the long tests, and all of the store's through PgBouncer
	@$(BIN)/python -m pytest -m campaign --timeout 3600 $(ARGS)
	@$(BIN)/python -m pytest -m pgbouncer --through-pgbouncer tests/store $(ARGS)

seeds: $(VENV)/.dev ## replay five accidents, on both databases
	@$(BIN)/python -m tools.run_seeds $(ARGS)

# NO_MKDOCS_2_WARNING: a word of the theme's authors to users of another version.
docs: $(VENV)/.dev ## build the documentation as a site, and test it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The site is in site/index.html"
	@$(BIN)/python -m pytest -m "not campaign" tests/docs $(ARGS)

screenshots: $(VENV)/.dev ## take the pictures of the dashboard and of the demo anew
	@$(BIN)/python -m tools.screens --docs
	@$(BIN)/python -m tools.demo_picture

format: $(VENV)/.dev ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove what the other verbs made
	@rm -rf $(VENV) .venv-newest .venv-lowest failed-tests.log build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .bench
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Outlast needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# The demo needs the package alone, so it does not wait for the tools.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "Installing Outlast into $(VENV)" >&2
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "Installing Outlast and its development tools into $(VENV)" >&2
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.core
