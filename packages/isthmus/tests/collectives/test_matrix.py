"""Every operation of torch.distributed x dtype x ReduceOp x number of ranks on the chip, against the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.children import start_module
from tests.helpers.outside_driver import build

# Optional driver functions; the core replaces them by messages.
WITHOUT_OPTIONAL = "table.gather = 0; table.scatter = 0; table.all_to_all = 0; table.all_to_all_v = 0;"


def run(size: int, folder: Path, **environment: str) -> int:
    """Run the matrix on some ranks; return the number of cases run by each."""
    settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "1GiB", **environment}
    processes = [
        start_module("tests.helpers.matrix_rank", str(rank), str(size), str(folder / "store"), **settings)
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (output, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
        assert json.loads(output.splitlines()[-1])["wrong"] == {}
    return int(json.loads(outputs[0][0].splitlines()[-1])["ran"])


@pytest.mark.parametrize("size", [4, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 2, 8))])
def test_matrix(tmp_path: Path, size: int) -> None:
    assert run(size, tmp_path) > 400


@pytest.mark.full
def test_matrix_without_optional_functions(tmp_path: Path) -> None:
    assert run(3, tmp_path, ISTHMUS_DRIVER=build(tmp_path, WITHOUT_OPTIONAL)) > 400
