# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
OUT ?= out
WORKERS ?= 2
PY := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_ARGS

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lab build release check grade report bench format clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup:  ## make .venv and install everything (the other targets do this by themselves)
	@$(PYTHON) grader/bootstrap.py

demo: setup  ## the main job: build, grade the sample class, run the CPU experiment small, say where everything is
	@bash grader/demo.sh $(OUT)/demo $(WORKERS)

test: setup  ## everything that CI runs
	@$(PYTHON) grader/bootstrap.py --browser
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m grader build --check
	$(PY) -m pytest --nbval --nbval-current-env solutions -p no:cacheprovider
	$(PY) -m pytest -m "not slow" -n 2

test-all: test  ## and the slow checks: long fuzzing, hosted versions, the whole browser walk
	$(PY) -m pytest -m slow -rs

lab: setup build  ## JupyterLab on the notebooks; make lab DIR=out/class: formgrader on a graded class
	$(PY) -m grader lab $(DIR) $(LAB_ARGS)

build: setup  ## masters in solutions/ → executed solutions/*.ipynb → notebooks/*.ipynb
	$(PY) -m grader build

# A folder for each, unless OUT is given.
release: OUT = out/release
grade report: OUT = out/class

release: setup  ## make release SOURCE=file.ipynb OUT=dir: the student edition of any nbgrader notebook
	$(PY) -m grader release $(SOURCE) --out $(OUT)

check: setup  ## make check NOTEBOOK=file: the visible tests, as a student runs them
	$(PY) -m grader check $(NOTEBOOK)

grade: setup  ## make grade SUBMISSIONS=dir ASSIGNMENT=04_execution_dispatch OUT=dir
	$(PY) -m grader grade $(SUBMISSIONS) --assignment $(or $(ASSIGNMENT),04_execution_dispatch) --out $(OUT) --workers $(WORKERS)

report: setup  ## make report OUT=dir [ARGS="--canvas-template FILE"]: the class at a glance, grades for Canvas and Moodle
	$(PY) -m grader report $(OUT) $(ARGS)

bench: setup  ## how fast: stock nbgrader and this grader in turn on the same class; BENCH_ARGS="--full" for N up to 300
	$(PY) -m grader.bench --out $(OUT)/bench $(BENCH_ARGS)

format:  ## let ruff sort imports and format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:  ## remove what was made: .venv, out/, caches
	rm -rf .venv out benchmarks .pytest_cache .ruff_cache .hypothesis *.egg-info
