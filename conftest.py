"""Shared fixtures. The environment is set before anything imports torch."""

import argparse
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Two devices, to expose mistakes about the current device.
os.environ.setdefault("ISTHMUS_HOST_DEVICES", "2")
os.environ.setdefault("ISTHMUS_HOST_MEMORY", "2GiB")
# Triton's cache has a kernel's source lines with the folder of the checkout that compiled it first.
os.environ.setdefault("TRITON_CACHE_DIR", str(Path(__file__).parent / "build/triton-cache"))
if "PYTEST_XDIST_WORKER" in os.environ:  # parallel workers: each has its own chips
    _account = tempfile.TemporaryDirectory(prefix="isthmus-tests-")
    os.environ["XDG_RUNTIME_DIR"] = _account.name
    os.environ["OMP_WAIT_POLICY"] = "passive"  # spinning threads would delay the other worker

if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # a job in the background of a shell; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A worker runs the tests of a file together; these files start first, so that none of them is left at the end.
LONG_FILES = (
    "packages/isthmus/tests/launch/test_run.py",
    "packages/isthmus/tests/integrations/test_pretrain_llama.py",
    "packages/isthmus/tests/conformance/test_run.py",
    "tests/tools/test_docs.py",
    "tests/tools/test_mutation.py",
    "packages/isthmus/tests/megatron/test_megatron.py",
    "packages/isthmus/tests/opset/test_opset.py",
    "packages/isthmus/tests/collectives/test_matrix.py",
    "packages/isthmus/tests/integrations/test_hugging_face.py",
    "packages/isthmus/tests/integrations/test_llama_finetune.py",
    "packages/isthmus/tests/integrations/test_accelerate.py",
    "packages/isthmus/tests/dispatch/test_opinfo.py",
    "packages/isthmus-migrate/tests/test_convert_ddp_runs.py",
    "packages/isthmus/tests/collectives/test_faults.py",
    "packages/isthmus/tests/drivers/test_sample_chip.py",
    "packages/isthmus/tests/drivers/test_numpy_chip.py",
    "packages/isthmus-diagnostics/tests/debug/test_debug_jobs.py",
    "packages/isthmus-diagnostics/tests/debug/test_debug_bisect.py",
    "packages/isthmus/tests/test_commands.py",
    "packages/isthmus/tests/chip/compile/test_graph_backend.py",
)
_SAMPLED = pytest.StashKey[tuple[int, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that turns sampling off."""
    parser.addoption(
        "--full", action="store_true", help="run every case, not a sample by pairs of parameters"
    )
    parser.addoption("--part", type=_part, default=(1, 1), help="run part i of n of the files, as 2/4")


def _part(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text}: give the part and the number of parts, such as 2/4")
    return int(part), int(parts)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part that is asked for and sample its cases; skip the host chip's; put long files first.

    All cases are kept if they, or one by its name, are asked for.
    """
    _keep_part(config, items)
    if not config.getoption("full") and not any("::" in each for each in config.args):
        from tests.helpers.sampling import sample

        kept = sample(items)
        _note_sample(config, len(kept), len(items))
        names = {item.nodeid for item in kept}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = kept
    if os.environ.get("ISTHMUS_DRIVER", "host") != "host" or os.environ.get("ISTHMUS_HOST_ASYNC", "0") == "1":
        for item in items:
            if mark := item.get_closest_marker("host"):
                item.add_marker(pytest.mark.skip(reason=f"of the host chip: {mark.args[0]}"))
    place = {name: index for index, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = config.getoption("part")
    files = sorted({item.path for item in items})
    kept = set(files[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item.path not in kept])
    items[:] = [item for item in items if item.path in kept]


def _note_sample(config: pytest.Config, kept: int, total: int) -> None:
    config.stash[_SAMPLED] = kept, total
    if hasattr(config, "workeroutput"):
        config.workeroutput["sampled"] = [kept, total]


def pytest_collection_finish() -> None:
    """Exempt what the tests' modules imported from garbage collection, each of which would walk through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Collect the counts of a pytest-xdist worker."""
    if sampled := getattr(node, "workeroutput", {}).get("sampled"):
        _note_sample(node.config, *sampled)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the number of cases left out."""
    kept, total = config.stash.get(_SAMPLED, (0, 0))
    if kept < total:
        terminalreporter.write_line(f"sampled: {kept:,} of {total:,} cases; --full runs all")


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Undo what commands that run in this process set for themselves: the children of later tests inherit it."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Seed each test separately, so that failures are reproducible; does not import torch."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hand-written golden data. Test files that need other data have their own fixture."""
    from tests.helpers.conformance_data import write_golden

    return write_golden(tmp_path_factory.mktemp("data") / "golden")


@pytest.fixture(scope="session")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator library that is correct for that data."""
    from tests.helpers.conformance_libraries import write_library

    return write_library(tmp_path_factory.mktemp("library"), "right")


@pytest.fixture
def fresh_memory() -> Iterator[None]:
    """Empty the chip's cache before the test and its memory history after it."""
    import torch

    gc.collect()
    torch.chip.synchronize()
    torch.chip.empty_cache()
    yield
    torch.chip.memory._record_memory_history(None)
