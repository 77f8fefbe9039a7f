# Each word is all that is needed on a fresh machine with python3 (and its venv module) and make.
#   make chat     install into .venv and start the chat;  make chat ARGS="--demo"
#   make test     all tests;  make test ARGS="tests/llm -k retry"
#   make check    before a commit: format, lint, types, all tests but the slow ones
# Another Python (3.11 or newer):  make chat PYTHON=python3.12

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
BIN    := $(VENV)/bin
SOURCES := agent_loop.py agentmain.py ga.py llmcore.py simphtml.py TMWebDriver.py genericagent frontends plugins reflect
UNIT   := $(addprefix tests/, $(addsuffix .py, llm/test_convert llm/test_history llm/test_sse llm/test_textproto llm/test_usage \
          llm/test_wire store/test_outbox test_agent_loop test_handler test_config safety/test_policy safety/test_term \
          cli/test_render cli/test_composer tools/test_arguments))
ROOMS  := browser contract crash frontends llm memory reflect safety security store tools
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Where this is set, each of the programs that the tests start would compile all of the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help chat test check unit cover lint type bench fmt lock clean FORCE

help:
	@sed -n 's/^#   //p' Makefile
	@echo 'others: unit cover lint type fmt lock bench clean'

# Stamps make the second start quick. The environment is made anew when another PYTHON is asked for.
ifneq ($(origin PYTHON),file)
ifneq ($(PYTHON),$(shell cat $(VENV)/.python 2>/dev/null))
$(VENV)/.python: FORCE
endif
endif

FORCE:

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'Python 3.11 or newer is needed; "$(PYTHON)" is missing or older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)'; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo 'Python has no venv module. On Debian or Ubuntu: sudo apt-get install python3-venv'; exit 1; }
	@test -e '$(VENV)/.python' || test -z "$$(ls -A '$(VENV)' 2>/dev/null)" || { \
	  echo '$(VENV) is not empty and no environment of ours: name another folder (VENV=…), or remove it yourself'; exit 1; }
	@$(PYTHON) -m venv --clear '$(VENV)'
	@echo '$(PYTHON)' >'$(VENV)/.python'

$(VENV)/.base: $(VENV)/.python pyproject.toml
	@echo 'Installing into $(VENV) …'
	@$(PIP) install -e .
	@$(BIN)/python -m compileall -q $(SOURCES)
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	@echo 'Installing the development tools into $(VENV) …'
	@$(PIP) install -e '.[dev]'
	@$(BIN)/python -m compileall -q $(SOURCES)
	@touch $@ $(VENV)/.base

chat: $(VENV)/.base
	@$(BIN)/python agentmain.py $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: lint type
	$(BIN)/python -m pytest -n 4 -m "not slow" $(ARGS)

# What the tests of the rooms and of the modules at the top run of them, the programs that they start included.
cover: $(VENV)/.dev
	rm -rf .coverage
	mkdir .coverage
	$(BIN)/coverage run -m pytest -n 2 $(addprefix tests/, $(ROOMS) cli/test_user_commands.py cli/test_first_run.py) $(wildcard tests/test_*.py) $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

# What has no process, no browser and no terminal, in seconds.
unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow" $(UNIT) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

type: $(VENV)/.dev
	$(BIN)/mypy

fmt: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The newest versions that pyproject.toml allows, for every system, each with the hashes of its files.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' pyproject.toml

lock: $(VENV)/.python
	@$(PIP) install 'uv>=0.5,<1'
	@$(LOCK) -o requirements.lock
	@$(LOCK) -o requirements-dev.lock --all-extras -c requirements.lock

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py $(ARGS)

clean:
	test ! -e '$(VENV)/.python' || rm -rf '$(VENV)'
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
