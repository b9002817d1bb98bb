# Every target is idempotent and quick when nothing changed. PYTHON=python3.12 picks another interpreter.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LMQ    := $(BIN)/lmq
ROUNDS ?= 25
RUNS   ?= 1
HOURS  ?= 1
INPUTS ?= 10000000

CODE   := mqtt_proxy lmq_store notify loadtest
TYPES  := $(shell find $(CODE) -name '*.pxd' 2>/dev/null)
HOT    := $(wildcard $(TYPES:.pxd=.py))

.PHONY: help run venv docs build test lint demo bench crash scale soak fuzz wheel clean
help:
	@echo "make run        start on 127.0.0.1:1883 with data in ./data"
	@echo "make test       lint, types, structure and all tests (installs what they need)"
	@echo "make demo       a fleet of sensors, a crash in the middle, and the account"
	@echo "make bench      the table of docs/benchmarks.md (RUNS=3 for medians)"
	@echo "make crash      kill -9 under load, ROUNDS=$(ROUNDS)"
	@echo "make scale      a million queues, 10 million waiting messages, 100,000 retained: the figures"
	@echo "make soak       mixed load for HOURS=$(HOURS)"
	@echo "make fuzz       decoder and session, INPUTS=$(INPUTS)"
	@echo "make wheel      a wheel with the compiled modules in dist/"
	@echo "make venv       .venv with lmq, paho-mqtt and amqtt, modules compiled where possible"

venv: $(VENV)/.installed $(VENV)/.built
	@:

build: venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "lmq needs Python 3.11 to 3.13 ($(PYTHON) is $$($(PYTHON) -V 2>&1)); say for example: make venv PYTHON=python3.11" >&2; exit 2; }
	@echo "creating $(VENV)" && $(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing lmq and what it needs into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel Cython
	@LMQ_BUILD=0 $(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.built: setup.py $(TYPES) $(HOT) | $(VENV)/.installed
	@echo "compiling the hot modules (once)"
	@$(BIN)/python setup.py -q build_ext --inplace >/dev/null
	@touch $@

run: venv
	@echo "try next:  $(LMQ) sub -v -t 'demo/#' --from earliest      (leave it open)"
	@echo "           $(LMQ) pub -t demo/hello -m 'hello, light queues' -q 1"
	@echo "           kill -9 the server, make run again: nothing acknowledged is gone. Ctrl-C stops it; data is in ./data"
	@exec $(LMQ) serve --listen mqtt://127.0.0.1:1883 --data ./data

test: venv
	@VENV=$(VENV) bash tests/run_all.sh

lint: venv
	@$(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

demo: venv
	@$(LMQ) demo

bench: venv
	@$(BIN)/python -m loadtest.bench --runs $(RUNS)

crash: venv
	@$(BIN)/python -m tests.crash --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

scale: venv
	@$(BIN)/python -m tests.scale

soak: venv
	@$(BIN)/python -m loadtest.soak --hours $(HOURS)

fuzz: venv
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

docs: venv
	@$(LMQ) config markdown docs/operations.md

wheel: venv
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w dist . && ls -l dist/*.whl

clean:
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(CODE) \( -name '*.so' -o -name '*.c' -o -name __pycache__ \) -prune -exec rm -rf {} +
	@rm -f $(VENV)/.built
