"""A job whose kernel is wrong, for the tests of the debug tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.drivers import find
from tests.helpers import children

ISTHMUS = str(Path(sys.executable).with_name("isthmus"))

WRONG_LIBRARY = """
import numpy as np
from isthmus.opset.library import Library

library = Library("wrong", "silu with a wrong last element")


@library.operator("aten::silu", dtypes=("float32",))
def silu(self, out):
    out[...] = self / (1 + np.exp(-self))
    out.reshape(-1)[-1] = VALUE
"""

TRAINING = """
import torch

torch.manual_seed(0)
weight = torch.randn(6, 4).cuda().requires_grad_()
for _ in range(2):
    loss = torch.nn.functional.silu(weight @ weight.t()).mean()
    loss.backward()
    weight.data -= 0.1 * weight.grad
    print("loss:", loss.item())
"""

DRIVER = """
name = "bare"
library = "{library}"
delegate = "none"
fallback = false
operators = ["operators.py"]
"""

KERNELS = """
import numpy as np
from isthmus.opset.library import Library

library = Library("bare", "four operators")


@library.operator("aten::arange.start_step", dtypes=("float32",))
def arange(start, end, step, out):
    out[...] = start + step * np.arange(out.size)


@library.operator("aten::mul.Tensor", dtypes=("float32",))
def mul(self, other, out):
    out[...] = self * other


@library.operator("aten::sigmoid", dtypes=("float32",))
def sigmoid(self, out):
    out[...] = 1 / (1 + np.exp(-self))


@library.operator("aten::silu", dtypes=("float32",))
def silu(self, out):
    out[...] = FACTOR * self / (1 + np.exp(-self))
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Description of a chip with four kernels and neither delegate nor fallback; its silu is wrong."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "driver.toml").write_text(DRIVER.format(library=find("host").candidates[0].path))
    (folder / "operators.py").write_text(KERNELS.replace("FACTOR", "2"))
    return folder / "driver.toml"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of a job whose silu is wrong; the program is train.py in the current folder."""
    (tmp_path / "train.py").write_text(TRAINING)
    library = tmp_path / "wrong.py"
    library.write_text(WRONG_LIBRARY.replace("VALUE", "0.5"))
    yield {
        "ISTHMUS_LIBRARIES": str(library),
        "ISTHMUS_ROUTE": "aten::silu=kernel",
        "ISTHMUS_DEBUG_FOLDER": str(tmp_path / "debug"),
        "ISTHMUS_QUIET": "1",
    }


def isthmus(*words: str, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return children.command(*words, folder=cwd, **changes)
