# make demo | test | lint | clean - each sets itself up in .venv the first time, and again when pyproject.toml changes.
#
# PYTHON=python3.12    another interpreter (3.11 or newer)
# PYTEST_ARGS="-k imu" further arguments of pytest
PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
C_SOURCES := $(wildcard runtime_c/*.[ch] tests/*/*.[ch])

.PHONY: help demo check test lint clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   build the IMU example, stream its recorded data through the C, compare with the references"
	@echo "make check  run the tests without the random searches"
	@echo "make test   run all tests, one process per core (PYTEST_ARGS for more arguments)"
	@echo "make lint   ruff, mypy --strict, and clang-format where it is installed"
	@echo "make clean  remove .venv and everything that was built"

demo: $(VENV)/.verify
	$(BIN)/python examples/imu/demo.py

test: $(VENV)/.test
	$(BIN)/pytest -n auto $(PYTEST_ARGS)

check: $(VENV)/.test
	$(BIN)/pytest -n auto -m 'not search' $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v clang-format >/dev/null; then \
		echo "clang-format --dry-run -Werror $(words $(C_SOURCES)) files of runtime_c and tests"; \
		clang-format --dry-run -Werror $(C_SOURCES); \
	else \
		echo "clang-format is not installed: C layout was not checked"; \
	fi

# One stamp per extra of pyproject.toml. Nothing is fetched again while pyproject.toml stays as it is.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON) was not found. Install Python 3.11 or newer, or name one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); 3.11 or newer is needed. Name one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "no virtual environment was made. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
