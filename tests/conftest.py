"""What every test shares. The environment is set before anything imports torch."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Two devices, so that a mistake about the current device shows.
os.environ.setdefault("ISTHMUS_HOST_DEVICES", "2")
os.environ.setdefault("ISTHMUS_HOST_MEMORY", "2GiB")
if "PYTEST_XDIST_WORKER" in os.environ:  # tests beside tests: the capacity of a chip is each worker's own
    _account = tempfile.TemporaryDirectory(prefix="isthmus-tests-")
    os.environ["XDG_RUNTIME_DIR"] = _account.name
    os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that spin would hold up the other worker


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Random numbers are those of the test alone, so that a failure shows again; nothing imports torch for that."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden data by hand. A file of tests that needs other data has a fixture of its own."""
    from tests.helpers.conformance_data import write_golden

    return write_golden(tmp_path_factory.mktemp("data") / "golden")


@pytest.fixture(scope="session")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator library that is right about that data."""
    from tests.helpers.conformance_libraries import write_library

    return write_library(tmp_path_factory.mktemp("library"), "right")


@pytest.fixture
def fresh_memory() -> Iterator[None]:
    """Nothing cached on the chip before the test, no history of its memory after it."""
    import torch

    gc.collect()
    torch.chip.synchronize()
    torch.chip.empty_cache()
    yield
    torch.chip.memory._record_memory_history(None)
