# Two commands matter: `make play` and `make test`. Everything goes into .venv; python3 with venv is all that is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: play test lint setup setup-train setup-dev clean

play: setup
	@$(BIN)/birdie play

test: setup-dev
	@$(BIN)/python -m pytest

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/mypy

setup: $(VENV)/.play
setup-train: $(VENV)/.train
setup-dev: $(VENV)/.dev

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing; install it with: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "birdie needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "python3 cannot make virtual environments; install it with: apt install python3-venv"; exit 1; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.play: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.train: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) install -c constraints.txt -e '.[train]'
	@touch $@ $(VENV)/.play

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.train $(VENV)/.play

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
