# Every target installs and builds what it needs; a second run finds everything built.
#   make setup        create .venv, install the pinned packages, build the C++ core and the host chip
#   make train        train a small LLaMA on the available chip
#   make test [PACKAGE=isthmus-migrate]  lint, types, and the tests with sampled cases
#   make test TORCH=2.15.0  on another version of PyTorch, as all of these; its environment is .venv-2.15.0
#   make test-all [PACKAGE=...] [PART=2/4]  lint, types, and the tests with every case, or a part of them
#   make lint         ruff, clang-format, mypy, import contracts
#   make format       rewrite the sources with ruff and clang-format
#   make docs         regenerate every generated page and file
#   make site         build the documentation site, in English and Chinese, into build/site
#   make site-check   check the site in a browser: errors, search, links, a phone's width (needs chromium, chromedriver)
#   make differential  data sets and checkpoints against the real MindSpore, in an environment of its own (minutes)
#   make conform      run the conformance suite on the shipped chips, reports into runs/conform/
#   make bench        run the benchmarks, into benchmarks/results/
#   make opinfo       run all of PyTorch's operator samples on the chip, into docs/results/
#   make accumulation  errors of 16-bit sums operator by operator, and models in bfloat16, into docs/results/ (minutes)
#   make megatron MEGATRON=path        Megatron-LM's pretrain_gpt.py in every parallelism (minutes)
#   make megatron-tests MEGATRON=path  Megatron-LM's unit tests on 1, 2 and 4 ranks, into docs/results/ (hours)
#   make migrate-gold MIRRORS=path   files that people moved to torch.accelerator, converted, into docs/results/
#   make migrate-corpus MIRRORS=path   public CUDA scripts through isthmus migrate, into docs/results/ (half an hour)
#   make migrate-projects MIRRORS=path   whole public projects, converted, into docs/results/ (minutes)
#   make migrate-ddp MIRRORS=path   public scripts on two ranks after convert --ddp, into docs/results/ (minutes)
#   make internevo    InternEvo's training loop, its wheel in a separate folder (a minute)
#   make pytorch-tests MIRRORS=path  PyTorch's own tests for any device on the host chip, into docs/results/ (an hour)
#   make triton-tests MIRRORS=path  Triton's own tests of its language on tensors of the CPU, into docs/results/ (an hour)
#   make frameworks MIRRORS=path  frameworks' examples and popular programs, unmodified, into docs/results/ (an hour)
#   make triton-libraries MIRRORS=path  tests of libraries of Triton kernels, unmodified, into docs/results/ (hours)
#   make vllm [VLLM=0.32.0]  vLLM without compiled kernels in build/vllm-VERSION, and a prompt served on the chip (minutes)
#   make vllm-tests [VLLM=0.32.0]  serving in every way on tiny models, and vLLM's own tests, into docs/results/ (an hour)
#   make cuda-names   CUDA's names in the newest releases of libraries, and what is answered, into docs/results/ (a minute)
#   make ascend       install the vendor's torch_npu into a separate folder, run it on the host chip, and test it (minutes)
#   make ascend-core  the tests of device, dispatch, frameworks and parallelisms on the ascend driver (minutes)
#   make async-core   the tests of device, dispatch and memory with kernels that run later (minutes)
#   make ascend-compare  the ascend driver and torch_npu on one runtime, into docs/results/ascend.md (minutes)
#   make ascend-tests MIRRORS=path  torch_npu's and op-plugin's own tests over it, into docs/results/ (hours)
#   make ascend-hugging-face MIRRORS=path  tests of transformers and accelerate over it, into docs/results/ (hours)
#   make mindspeed MIRRORS=path  MindSpeed over it: training, and its own unit tests, into docs/results/ (hours)
#   make mutate       plant mistakes in correct kernels and run the conformance suite on them (minutes)
#   make silent-errors  plant publicly reported mistakes in correct kernels; docs/chip-makers/silent-errors.md (minutes)
#   make accuracy-faults [MSPROBE=python]  plant faults in training jobs and count those named, into docs/results/ (minutes)
#   make fuzz         random programs and captures on the host and numpy chips against the CPU (minutes)
#   make sanitize     random programs under AddressSanitizer and ThreadSanitizer; wrong arguments for AscendCL (minutes)
#   make matrix [CELLS="2.15.0 2.13.0@python3.13"]  a smoke set on each PyTorch, into docs/results/ (minutes)
#   make torch-next VERSION=2.15.0  what moved in that version of PyTorch, of what the project stands on
#   make wheel [PYTHONS="python3.11 python3.12"]  build the wheels into dist/, check them in fresh environments
#   make wheel TORCHES="2.13.0 2.15.0"  for each of these versions of PyTorch, and an upgrade from the first to the last
#   make wheel ARCH=aarch64  compile for another machine, and test in emulation (needs a cross compiler and qemu)
#   make release [CHECK=test]  check the tree, run make test-all, build wheels and their sums, print the next steps
#   make release VERSION=0.2.0  start a release: write VERSION and the section of CHANGELOG.md
#   make dependencies the lowest and the newest versions of what the packages require, into docs/results/ (minutes)
#   make clean        remove the build (not the environments)
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-and-lint build train test test-all differential conform bench lint format docs opinfo accumulation megatron megatron-tests migrate-corpus migrate-ddp migrate-gold migrate-projects internevo frameworks triton-libraries vllm vllm-tests cuda-names pytorch-tests triton-tests ascend ascend-core async-core ascend-compare ascend-tests ascend-hugging-face mindspeed mutate silent-errors accuracy-faults fuzz sanitize dependencies matrix torch-next site site-check wheel release clean

# Each version of PyTorch has an environment of its own; what is compiled for one lies beside what is for the others.
DEFAULT_TORCH := 2.13.0
# One of each supported minor version; a release has binaries for all.
ALL_TORCHES := $(DEFAULT_TORCH) 2.14.1 2.15.0
TORCH := $(DEFAULT_TORCH)
BESIDE := $(if $(filter-out $(DEFAULT_TORCH),$(TORCH)),-$(TORCH))
VENV := .venv$(BESIDE)
BIN := $(VENV)/bin
# The newest of the Pythons that PyTorch and constraints.txt are known to work with; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

STAMPS := build/stamps$(BESIDE)
CORE := packages/isthmus
ASCEND := packages/isthmus-ascend
# Files that the build of a package reads; isthmus_ops.h is made of the opset.
SOURCES = $(wildcard $(1)/setup.py) $(shell find $(1)/csrc -type f -not -name '*.md') $(wildcard $(1)/src/*/options.py $(1)/src/*/products.py)
OPSET := $(wildcard $(addprefix $(CORE)/src/isthmus/opset/,*.py *.json families/*.py))
FORMATTED := $(filter-out %/driver.h %/operators.h,$(shell find $(CORE)/csrc $(ASCEND)/csrc -name '*.cpp' -o -name '*.h'))
# pip compiles no module: Python does when it first imports one, fewer than a tenth of them, and has to keep the result.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --no-compile --constraint $(STAMPS)/constraints.txt
PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)
# The requirements of all packages with these extras, one per line.
REQUIREMENTS = $(BIN)/python -m tools.requirements $(PROJECTS) --
ENVIRONMENT := PATH="$(CURDIR)/$(BIN):$$PATH"
# Builds what a package compiles, in place: $(call BUILD,folder,what).
define BUILD
@touch $@.begun # a source that changes meanwhile is newer
@echo "make: building $(2) (log: build/$(notdir $(1)).log)"
@set -o pipefail; (cd $(1) && $(ENVIRONMENT) $(CURDIR)/$(BIN)/python -u setup.py build_ext --inplace) 2>&1 | \
  PYTHONPATH=$(CORE)/src:packages/isthmus-common/src $(BIN)/python -m isthmus.binaries.progress build/$(notdir $(1)).log || \
  { grep -A6 ' error: ' build/$(notdir $(1)).log || tail -n 40 build/$(notdir $(1)).log; exit 1; }
@grep -A4 ' warning: ' build/$(notdir $(1)).log || true
@mv $@.begun $@
endef

help:
	@sed -n 's/^#   //p' Makefile

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with venv on PATH; install one or set PYTHON=/path/to/python3" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || { echo "make: no C++ compiler on PATH; install g++ >= 11 or set CXX" >&2; exit 1; }
	@mkdir -p $(STAMPS)
	@test -x $(BIN)/python || { echo "make: creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@touch $@

# Another PyTorch requires another Triton.
$(STAMPS)/constraints.txt: constraints.txt | $(STAMPS)/venv
	@sed '$(if $(BESIDE),/^triton==/d; )s/^torch==.*/torch==$(TORCH)/' $< >$@

$(STAMPS)/packages: $(STAMPS)/venv $(STAMPS)/constraints.txt $(PROJECTS)
	@echo "make: installing torch $(TORCH) and pinned packages"
	@$(PIP) setuptools wheel ninja torch
	@$(REQUIREMENTS) train >$(STAMPS)/requirements.txt
	@$(PIP) --requirement $(STAMPS)/requirements.txt
	@touch $@

# What training does without.
$(STAMPS)/tools: $(STAMPS)/packages | $(STAMPS)/install
	@echo "make: installing the packages of the tests and the adaptors"
	@$(REQUIREMENTS) megatron deepspeed data dev >$(STAMPS)/tools-requirements.txt
	@$(PIP) --requirement $(STAMPS)/tools-requirements.txt
	@touch $@

$(STAMPS)/build: $(STAMPS)/packages $(call SOURCES,$(CORE)) $(OPSET)
	$(call BUILD,$(CORE),the core and the host chip; minutes the first time)

# Against the headers that isthmus installs.
$(STAMPS)/ascend: $(STAMPS)/install $(STAMPS)/build $(call SOURCES,$(ASCEND))
	$(call BUILD,$(ASCEND),the reference runtime of AscendCL; minutes the first time)

# Once; the packages are then imported from here, so that only the C++ is ever rebuilt. isthmus first: its earlier
# installation had the command, which goes with it, and isthmus-common brings it.
$(STAMPS)/install: $(STAMPS)/packages $(PROJECTS) VERSION
	@export ISTHMUS_BUILD=none $(ENVIRONMENT); $(PIP) --no-deps --no-build-isolation --editable ./$(CORE) && \
	  $(PIP) --no-deps --no-build-isolation \
	    $(foreach each,$(filter-out $(CORE),$(wildcard packages/*)),--editable ./$(each))
	@touch $@

# Side by side: one waits for compilers, the other for pip and for what checks the sources.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2)

build: $(STAMPS)/packages
	@$(MAKE) --silent $(JOBS) $(STAMPS)/build $(STAMPS)/install

setup: $(STAMPS)/packages
	@$(MAKE) --silent $(JOBS) $(STAMPS)/ascend $(STAMPS)/tools

setup-and-lint: $(STAMPS)/packages
	@$(MAKE) --silent $(JOBS) $(STAMPS)/ascend lint

train: build
	@$(BIN)/isthmus run examples/pretrain_llama.py --output runs/llama --overwrite --save-interval 150
	@echo "make: resuming at iteration 150; the losses must be those of the run above, bit for bit"
	@$(BIN)/isthmus run examples/pretrain_llama.py --output runs/llama --save-interval 150 \
	  --resume 150 --exit-iteration 160 --verify-resume

# Long files start first (conftest.py), so their order is kept.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# Tests that hold on any chip, but those marked host.
CORE_TESTS := $(addprefix $(CORE)/tests/,core chip memory dispatch privateuse1 integrations megatron deepspeed parallel shim) \
  --ignore=$(CORE)/tests/chip/compile

ASYNC_TESTS := $(addprefix $(CORE)/tests/,core chip memory dispatch privateuse1) --ignore=$(CORE)/tests/chip/compile

TESTS := $(if $(PACKAGE),packages/$(PACKAGE)/tests)

# The same random examples in each run; test-all draws new ones.
test: setup-and-lint
	@$(PYTEST) --hypothesis-profile=ci $(TESTS)

test-all: setup-and-lint
	@$(REQUIREMENTS) full >$(STAMPS)/full-requirements.txt
	@$(PIP) --requirement $(STAMPS)/full-requirements.txt
	@$(PYTEST) --full $(if $(PART),--part $(PART)) $(TESTS)
	@$(if $(PART)$(TESTS),,ISTHMUS_HOST_ASYNC=1 $(PYTEST) --full $(ASYNC_TESTS))

lint: $(STAMPS)/tools
	@$(BIN)/ruff check .
	@$(BIN)/clang-format --dry-run -Werror $(FORMATTED)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMPS)/tools
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $(FORMATTED)

accumulation: setup
	@$(BIN)/python -m tools.accumulation

opinfo: setup
	@$(BIN)/python -m tools.opinfo
	@$(BIN)/python -m tools.opinfo --layouts

# The schemas first: the build reads them.
docs: $(STAMPS)/tools
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m tools.docs tools.opset.torchgen_schemas
	@$(MAKE) --silent setup
	@$(BIN)/python -m tools.docs

# Sphinx and what drives a browser are only needed here.
$(STAMPS)/site: $(STAMPS)/packages
	@$(REQUIREMENTS) docs >$(STAMPS)/site-requirements.txt
	@$(PIP) --requirement $(STAMPS)/site-requirements.txt
	@touch $@

site: setup $(STAMPS)/site
	@$(BIN)/python -m tools.site

site-check: site
	@$(BIN)/python -m tools.site.check

# It requires other versions than those of constraints.txt, and computes with NumPy 1 only.
$(STAMPS)/mindspore: $(STAMPS)/venv
	@$(PYTHON) -m venv build/mindspore
	@build/mindspore/bin/python -m pip --disable-pip-version-check install --quiet --no-compile \
	  mindspore==2.10.0 'numpy<2'
	@touch $@

differential: setup $(STAMPS)/mindspore
	@ISTHMUS_TEST_MINDSPORE=build/mindspore/bin/python $(PYTEST) -m slow packages/isthmus-formats/tests/data packages/isthmus-formats/tests/checkpoint \
	  $(CORE)/tests/integrations/test_llama_finetune.py

conform: setup
	@ISTHMUS_HOST_DEVICES=2 $(BIN)/isthmus conform run --driver host --output runs/conform/host
	@$(BIN)/isthmus conform run --driver host --through pytorch --output runs/conform/host-pytorch
	@$(BIN)/isthmus conform run --driver numpy --output runs/conform/numpy
	@echo "make: the suite in a fresh environment without PyTorch"
	@$(BIN)/python -m pytest -m slow $(CORE)/tests/conformance/test_without_torch.py

bench: setup
	@for name in autoload overhead shim kernel_route graph_replay train_step accuracy compile_step llm_operators collectives parallel_step migrate_analyse data checkpoint plan advise plan_parallel ascend_overhead triton_debug; do \
	  echo "make: benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# The environments have the core of this one.
dependencies: setup
	@$(BIN)/python -m tools.dependencies

matrix: setup
	@$(BIN)/python -m tools.matrix $(CELLS)

torch-next: $(STAMPS)/tools
	@test -n "$(VERSION)" || { echo "make: set VERSION to a version of PyTorch, such as 2.15.0" >&2; exit 1; }
	@$(BIN)/python -m tools.torch_next $(VERSION)

wheel:
	@$(PYTHON) -m tools.wheel $(addprefix --torch ,$(or $(TORCHES),$(TORCH))) $(if $(ARCH),--machine $(ARCH)) \
	  $(or $(PYTHONS),$(PYTHON))

# A VERSION of the environment is not meant.
release:
	@$(PYTHON) -m tools.release $(if $(filter command,$(origin VERSION)),start $(VERSION),\
	  build --check $(or $(CHECK),test-all) $(addprefix --torch ,$(or $(TORCHES),$(ALL_TORCHES))) \
	  $(or $(PYTHONS),$(PYTHON)))

# The newest whose wheel has all of its modules; it pins an old transformers and brings a package `tests`: kept apart.
$(STAMPS)/internevo: $(STAMPS)/packages
	@$(PIP) --no-deps --target build/internevo InternEvo==0.4.9 \
	  requests urllib3 certifi charset-normalizer tensorboard protobuf absl-py
	@touch $@

# torch_npu loads itself at `import torch`, so it is in the environment of no other target. It is released for the first
# patch version of a PyTorch.
NPU := build/torch_npu$(BESIDE)
$(STAMPS)/torch_npu: $(STAMPS)/packages
	@$(PIP) --no-deps --target $(NPU) torch_npu==$(basename $(TORCH)).0
	@touch $@

ascend: setup $(STAMPS)/torch_npu
	@PYTHONPATH=$(NPU) $(BIN)/isthmus ascend run -c \
	  "import torch;import torch_npu; a = torch.randn(3, 4).npu(); print(a + a);"
	@PYTHONPATH=$(NPU) $(BIN)/isthmus ascend run examples/pretrain_llama.py --tiny \
	  --output runs/llama-npu --overwrite
	@$(PYTEST) $(ASCEND)/tests

ascend-core: setup
	@. "$$($(BIN)/isthmus ascend env)"; \
	  ISTHMUS_DRIVER=ascend ISTHMUS_ASCEND_DEVICES=2 ISTHMUS_ASCEND_MEMORY=2GiB $(PYTEST) $(CORE_TESTS)

# What kernels that run later would break: ISTHMUS_HOST_ASYNC.
async-core: setup
	@ISTHMUS_HOST_ASYNC=1 $(PYTEST) $(ASYNC_TESTS)

ascend-compare: setup $(STAMPS)/torch_npu
	@$(BIN)/python benchmarks/ascend_compare.py

# An interrupted run goes on where it was.
frameworks: setup build/frameworks/packages
	@PYTHONPATH=tools/frameworks/site:build/frameworks/packages $(BIN)/python -m tools.frameworks $(MIRRORS)

# The programs' packages stay beside the environment. torchtune requires an older torchao than peft takes.
build/frameworks/packages:
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target build/frameworks/torchtune \
	  torchtune==0.6.1 torchao==0.15.0
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target $@ \
	  --requirement tools/frameworks/packages.txt

build/triton-libraries/packages:
	@$(PIP) --no-deps --target $@ sqlalchemy

triton-libraries: setup build/triton-libraries/packages
	@$(BIN)/python -m tools.triton_libraries $(MIRRORS)

# Requires other versions than those of constraints.txt.
VLLM := 0.33.0
build/vllm-$(VLLM)/complete: $(STAMPS)/install $(STAMPS)/build
	@$(BIN)/python -m tools.vllm.environment $(VLLM)

build/vllm/models/llama: build/vllm-$(VLLM)/complete
	@echo "make: making a tiny model"
	@build/vllm-$(VLLM)/bin/python -m tools.vllm.models build/vllm/models llama

vllm: build build/vllm-$(VLLM)/complete build/vllm/models/llama
	@build/vllm-$(VLLM)/bin/isthmus vllm check
	@VLLM_LOGGING_LEVEL=WARNING build/vllm-$(VLLM)/bin/python examples/serve.py build/vllm/models/llama "the quick brown fox"

vllm-tests: vllm
	@build/vllm-$(VLLM)/bin/python -m tools.vllm $(VLLM)

cuda-names: setup
	@$(BIN)/python -m tools.cuda_names

# What only others' tests ask for stays beside the environment.
build/test-packages:
	@$(PIP) --no-deps --target $@ expecttest hypothesis parameterized sortedcontainers

# MIRRORS/Ascend+pytorch/repo or MIRRORS/Ascend/pytorch is a clone with its history.
pytorch-tests: setup build/test-packages
	@$(BIN)/python -m tools.pytorch_tests $(MIRRORS)

# MIRRORS/triton-lang+triton/repo or MIRRORS/triton-lang/triton is a clone with its history; a fork's serves.
triton-tests: setup
	@$(BIN)/python -m tools.triton_tests $(MIRRORS)

# An interrupted run goes on where it was.
ascend-tests: setup $(STAMPS)/torch_npu build/test-packages
	@$(BIN)/python -m tools.ascend.vendor $(MIRRORS)

# transformers 5.14 requires older packages than those of constraints.txt.
ascend-hugging-face: setup $(STAMPS)/torch_npu
	@test -d build/hugging-face-packages || \
	  $(filter-out --constraint constraints.txt,$(PIP)) --no-deps --target build/hugging-face-packages \
	    huggingface_hub==1.24.0 tokenizers==0.22.2 httpx==0.28.1 httpcore==1.0.9 certifi parameterized==0.9.0 \
	    datasets==4.8.5 pyarrow pandas dill==0.4.0 multiprocess==0.70.18 xxhash requests urllib3 idna \
	    charset-normalizer pytz tzdata
	@$(BIN)/python -m tools.hugging_face $(MIRRORS)

mindspeed: setup $(STAMPS)/torch_npu
	@test -d build/mindspeed-packages || \
	  $(PIP) --no-deps --target build/mindspeed-packages protobuf pybind11 pytest-mock six
	@$(BIN)/python -m tools.mindspeed $(MIRRORS)

internevo: setup $(STAMPS)/internevo
	@PYTHONPATH=build/internevo PYTHONWARNINGS=ignore $(BIN)/isthmus run $(CORE)/tests/scripts/internevo_training.py
	@PYTHONPATH=build/internevo PYTHONWARNINGS=ignore $(BIN)/isthmus run --nproc 2 $(CORE)/tests/scripts/internevo_training.py
	@PYTHONPATH=build/internevo PYTHONWARNINGS=ignore $(BIN)/isthmus run --nproc 2 $(CORE)/tests/scripts/internevo_training.py tensor
	@PYTHONPATH=build/internevo PYTHONWARNINGS=ignore $(BIN)/isthmus run --provide flash_attn,apex \
	  $(CORE)/tests/scripts/internevo_training.py bf16 flash

megatron: setup
	@$(BIN)/python -m tools.megatron.checkout $(MEGATRON)
	@$(MAKE) --no-print-directory megatron-tests

# What only Megatron's tests ask for stays beside the environment. An interrupted run goes on where it was.
megatron-tests: setup
	@test -d build/megatron-tests || $(PIP) --no-deps --target build/megatron-tests einops pytest-asyncio pytest-mock
	@$(BIN)/python -m tools.megatron.unit_tests $(MEGATRON)

# MIRRORS is a folder of git repositories, pytorch/examples and so on. An interrupted run goes on where it was.
migrate-corpus: setup build/migrate-corpus
	@$(BIN)/python -m tools.migrate_corpus $(MIRRORS)

migrate-ddp: setup build/migrate-corpus
	@$(BIN)/python -m tools.migrate_ddp $(MIRRORS)

build/migrate-corpus:
	@$(PIP) --no-deps --target $@ torchvision==0.28.0 six

# MIRRORS/pytorch+examples/repo or MIRRORS/pytorch/examples is a clone with its history.
migrate-gold: setup
	@$(BIN)/python -m tools.migrate_gold $(MIRRORS)

migrate-projects: setup
	@$(BIN)/python -m tools.migrate_projects $(MIRRORS)

mutate: setup
	@$(BIN)/python -m tools.mutation --output benchmarks/results/mutation.json --page docs/results/mutation.md

silent-errors: setup
	@$(BIN)/python -m tools.mutation.bank --output benchmarks/results/silent-errors.json --page docs/chip-makers/silent-errors.md

accuracy-faults: setup
	@$(BIN)/python -m tools.accuracy_faults $(and $(MSPROBE),--msprobe $(MSPROBE))

fuzz: setup
	@$(BIN)/python -m tools.fuzz
	@ISTHMUS_DRIVER=numpy $(BIN)/python -m tools.fuzz

sanitize: setup
	@$(BIN)/python -m tools.sanitize
	@ISTHMUS_DRIVER=none $(BIN)/python -m tools.ascend.fuzz

clean:
	@rm -rf build dist packages/*/build packages/*/src/*.egg-info $(CORE)/src/isthmus/binaries/torch_* $(CORE)/src/isthmus/include
	@find packages -name '*.so' -delete
