# make demo   the main job, from a fresh machine          make test      the default tests
# make lint   format, lint, types, import layers          make test-all  slow tests too
# make bench  speed, memory, scale                        make results   tables in results/ and docs/ from committed runs
# make docs   docs/privacy.md from the reply types       make screenshots  docs/images, with chromium
#
# PIP_OPTIONS is handed to every pip install (another index, a proxy, …); PYTHON is what makes the environment.

PYTHON ?= python3
PIP_OPTIONS ?=
VENV := .venv
BIN := $(VENV)/bin
# Two workers by default; `make test TEST_OPTIONS="-n 8"` on a larger machine.
TEST_OPTIONS ?= -n 2
READY := $(VENV)/.ready
READY_FLOWER := $(VENV)/.ready-flower

.PHONY: setup setup-flower demo test test-all lint format bench results docs screenshots clean
.DEFAULT_GOAL := demo

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_OPTIONS) --upgrade pip
	$(BIN)/python -m pip install --quiet $(PIP_OPTIONS) --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

# Flower and Ray are 500 MB: tests and types need them, the demo does not.
setup-flower: $(READY_FLOWER)

$(READY_FLOWER): $(READY)
	$(BIN)/python -m pip install --quiet $(PIP_OPTIONS) --constraint constraints.txt --editable '.[dev,flower]'
	@touch $(READY_FLOWER)

demo: setup
	$(BIN)/fedsir demo

test: setup-flower
	$(BIN)/python -m pytest -m "not slow" $(TEST_OPTIONS)

test-all: setup-flower
	$(BIN)/python -m pytest $(TEST_OPTIONS)

lint: setup-flower
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python -m benchmarks

results: setup
	$(BIN)/python results/refresh.py

docs: setup
	$(BIN)/python docs/make_privacy.py

screenshots: setup
	$(BIN)/python docs/make_screenshots.py
	$(BIN)/python docs/review_screenshots.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
