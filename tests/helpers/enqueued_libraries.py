"""Operator libraries whose kernels only enqueue, as those of a device do: a correct one and wrong ones."""

from __future__ import annotations

import textwrap
from pathlib import Path

from isthmus.drivers import find

# Memory of the host chip: host functions on its streams reach it.
HEAD = """
import time
from isthmus.conformance.driver.case import host_function
from isthmus.drivers import find
from isthmus.drivers.driver import Driver
from isthmus.opset.library import Library

library = Library("NAME", "for the tests")
driver = Driver(find("host").candidates[0].path, "host")
enqueued = []  # keeps the functions
side = driver.result_of("stream_create", 0)


def enqueue(stream, body):
    enqueued.append(host_function(driver, stream, body))


def later(stream, body):
    # The library works on a stream of its own, behind the stream's work so far, for which no one waits.
    event = driver.result_of("event_create", 0)
    driver.event_record(event, stream)
    driver.stream_wait_event(side, event)
    driver.event_destroy(event)
    enqueue(side, lambda: time.sleep(0.05))
    enqueue(side, body)


@library.operator("aten::add.Tensor", dtypes=("float32",), host=False)
def add(self, other, alpha, out, context):
    stream = context.stream or 0

    def compute():
        out[...] = self + other
"""

# Name -> body of the kernel.
LIBRARIES = {
    "right": "enqueue(stream, compute)",
    "restores_its_input": """
        kept = []

        def borrow():
            kept.append(other.copy())
            other[...] += self

        def use():
            time.sleep(0.05)
            out[...] = other

        def restore():
            other[...] = kept[0]

        for step in (borrow, use, restore):
            enqueue(stream, step)
    """,
    "reads_its_inputs_late": """
        enqueue(stream, compute)
        later(stream, compute)
    """,
    "reads_its_workspace_late": """
        memory = (ctypes.c_char * out.nbytes).from_address(context.workspace(out.nbytes))
        scratch = np.ndarray(out.shape, out.dtype, memory)

        def fill():
            scratch[...] = self + other

        def take():
            out[...] = scratch

        for step in (fill, take):
            enqueue(stream, step)
        later(stream, take)
    """,
}


def write_enqueued(folder: Path, name: str) -> Path:
    """Write a library of :data:`LIBRARIES` to a file."""
    file = folder / f"{name}.py"
    body = textwrap.indent(textwrap.dedent(LIBRARIES[name]).strip(), "    ")
    file.write_text(f"import ctypes\nimport numpy as np{HEAD.replace('NAME', name)}\n{body}\n")
    return file


# A chip whose kernels of PyTorch's operators take time on their stream, as a device's do.
SLOW_CHIP = """
name = "slow"
library = "{host}"
delegate = "none"
operators = ["slow.py", "{numpy}"]
fallback = false
"""
SLOW_LIBRARY = """
import time
import numpy as np
from isthmus.conformance.driver.case import host_function
from isthmus.drivers import find
from isthmus.drivers.driver import Driver
from isthmus.opset.library import Library

library = Library("slow", "for the tests")
driver = Driver(find("host").candidates[0].path, "host")
enqueued = []  # keeps the functions


@library.operator("aten::add.Tensor", dtypes=("float32",), host=False, strided=True, in_place=True)
def add(self, other, alpha, out, context):
    def compute():
        value = self + other * np.float32(alpha)
        time.sleep(0.02)
        out[...] = value

    enqueued.append(host_function(driver, context.stream or 0, compute))
"""


def write_slow_chip(folder: Path) -> Path:
    """Write the description of a chip whose addition returns before it has computed."""
    (folder / "slow.py").write_text(SLOW_LIBRARY)
    file = folder / "driver.toml"
    numpy = Path(find("numpy").candidates[0].operators[0])
    file.write_text(SLOW_CHIP.format(host=find("host").candidates[0].path, numpy=numpy))
    return file
