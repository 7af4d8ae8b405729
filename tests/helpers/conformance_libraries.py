"""Operator libraries for tests of the suite: a correct one, and one for each kind of mistake."""

from __future__ import annotations

import textwrap
from pathlib import Path

HEAD = """
import ctypes
import numpy as np
from isthmus.opset.dtypes import NUMBERS
from isthmus.opset.library import Library, Unsupported

library = Library("NAME", "for the tests")
DTYPES = ("float32", "bfloat16", "int64")


def wide(x):
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def store(out, value):
    # float64 to bfloat16 in one rounding: to odd in float32 first
    if out.dtype.itemsize != 2:
        out[...] = value
        return
    near = np.asarray(value).astype(np.float32)
    off = near.astype(np.float64) != value
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(value), near.view(np.uint32) - 1, near.view(np.uint32))
    out[...] = np.where(off, toward | 1, near.view(np.uint32)).astype(np.uint32).view(np.float32)
"""

RIGHT = """
@library.operator("aten::add.Tensor", dtypes=DTYPES, strided=True, in_place=True)
def add(self, other, alpha, out):
    store(out, wide(self) + alpha * wide(other))

@library.operator("aten::mul.Tensor", dtypes=("float32", "bfloat16"))
def mul(self, other, out):
    store(out, wide(self) * wide(other))

@library.operator("aten::copy_", dtypes=NUMBERS, strided=True)
def copy(self, source):
    self[...] = source

@library.operator("aten::cat", dtypes=NUMBERS)
def cat(tensors, dim, out):
    np.concatenate(tensors, dim, out=out)

@library.operator("aten::_foreach_add.Scalar", dtypes=("float32",))
def foreach_add(self, scalar, out):
    for x, y in zip(self, out, strict=True):
        store(y, wide(x) + scalar)

@library.operator("aten::uniform_", dtypes=("float32",))
def uniform(self, low, high, context):
    self[...] = np.random.default_rng(context.seed).random(self.shape, np.float32) * (high - low) + low

@library.operator("aten::sum.dim_IntList", dtypes=("float32", "bfloat16"))
def total(self, dim, keepdim, out):
    store(out, wide(self).sum(tuple(dim), keepdims=keepdim))
"""

ADD = (
    '@library.operator("aten::add.Tensor", dtypes=DTYPES, strided=True{flags})\n'
    "def add(self, other, alpha, out{more}):"
)
ADDED = "store(out, wide(self) + wide(other))"
COPY = '@library.operator("aten::copy_", dtypes=NUMBERS, strided=True)\ndef copy(self, source):'
SUM = '@library.operator("aten::sum.dim_IntList", dtypes=DTYPES)\ndef total(self, dim, keepdim, out):'
UNIFORM = '@library.operator("aten::uniform_", dtypes=("float32",))\ndef uniform(self, low, high, context):'


def _add(body: str, flags: str = "") -> str:
    more = ", context" if "context." in body else ""
    return ADD.format(flags=flags, more=more) + "\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")


# Name -> (source, part of the suite's expected message).
WRONG: dict[str, tuple[str, str]] = {
    "one_element_off": (
        _add("store(out, wide(self) + wide(other)); out.reshape(-1)[-1:] += out.dtype.type(1)"),
        "elements are wrong",
    ),
    "last_not_written": (
        _add("out.reshape(-1)[:-1] = (wide(self) + wide(other)).reshape(-1)[:-1]"),
        "not written",
    ),
    "operands_swapped": (_add("store(out, wide(other) - wide(self))"), "elements are wrong"),
    "strides_ignored": (
        _add("flat = np.ndarray(self.shape, self.dtype, self.base); store(out, wide(flat) + wide(other))"),
        "elements are wrong",
    ),
    "truncates": (
        _add(
            """
            if out.dtype.itemsize == 2:
                near = (wide(self) + wide(other)).astype(np.float32)
                out[...] = (near.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            else:
                out[...] = self + other
            """
        ),
        "elements are wrong",
    ),
    "writes_its_input": (_add(f"{ADDED}; other[...] = 0"), "the input other was modified"),
    "writes_past_the_end": (
        _add(f"{ADDED}; ctypes.memset(out.ctypes.data + out.nbytes, 1, 3)"),
        "wrote outside its tensors",
    ),
    "writes_far_past_the_end": (
        _add(f"{ADDED}; ctypes.memset(out.ctypes.data + out.nbytes + 60_000, 1, 3)"),
        "wrote outside its tensors",
    ),
    "writes_past_its_workspace": (
        _add(f"{ADDED}; ctypes.memset(context.workspace(100) + 100, 1, 3)"),
        "wrote outside its workspace of 100 bytes: 3 bytes, the nearest 1 bytes behind it",
    ),
    "writes_before_its_workspace": (
        _add(f"{ADDED}; ctypes.memset(context.workspace(100) - 4096, 1, 1)"),
        "1 bytes, the nearest 4096 bytes before it",
    ),
    "writes_past_its_workspace_and_is_wrong": (
        _add("store(out, wide(self) + wide(other) + 1); ctypes.memset(context.workspace(100) + 100, 1, 3)"),
        "the nearest 1 bytes behind it; out: 20 of 20 elements are wrong",
    ),
    "trusts_its_workspace": (
        _add(f'{ADDED}\nif ctypes.string_at(context.workspace(1), 1) == b"Z": out.reshape(-1)[:1] = 0'),
        "on another stream gave different bits",
    ),
    "in_place_is_not": (_add(f"out[...] = 0; {ADDED}", ", in_place=True"), "in the memory of self"),
    "stale_cache": (
        "CACHE = {}\n"
        + _add(
            """
            key = (self.ctypes.data, self.shape, str(self.dtype))
            store(out, CACHE.setdefault(key, wide(self) + wide(other)))
            """
        ),
        "elements are wrong",
    ),
    "tuned_in_its_first_call": (
        "SEEN = []\n" + _add(f"{ADDED}; out.reshape(-1)[:1] *= len(SEEN) > 0; SEEN.append(1)"),
        "the first call with these shapes gave different bits",
    ),
    "not_deterministic": (
        "COUNT = [0]\n" + _add(f"COUNT[0] += 1; {ADDED}; out.reshape(-1)[:1] *= 1 - COUNT[0] % 3"),
        "",
    ),
    "raises": (_add('raise ValueError("no such thing")'), "raised ValueError: no such thing"),
    "returns_a_status": (
        _add('context.explain("other", "is too odd"); raise MemoryError("full")'),
        "out of memory",
    ),
    "gaps_written": (
        COPY + "\n    np.frombuffer(self.base, np.uint8)[:] = 1; self[...] = source",
        "the gaps of self",
    ),
    "drops_the_last": (SUM + "\n    store(out, wide(self)[:, :-1].sum(tuple(dim)))", "elements are wrong"),
    "accumulates_in_half": (
        SUM
        + "\n    total = np.zeros_like(out)\n    for i in range(self.shape[1]):\n        total = total + self[:, i]"
        "\n    out[...] = total",
        "elements are wrong",
    ),
    "not_random": (
        UNIFORM + "\n    self[...] = np.linspace(low, high * 0.9999, self.size)",
        "depend on each other",
    ),
    "wrong_range": (
        UNIFORM + "\n    self[...] = np.random.default_rng(context.seed).random(self.shape)",
        "mean",
    ),
    "constant_seed": (
        UNIFORM + "\n    self[...] = np.random.default_rng(0).random(self.shape) * (high - low) + low",
        "another seed",
    ),
    "half_of_the_seed": (
        UNIFORM
        + "\n    random = np.random.default_rng(context.seed % 2**32)"
        + "\n    self[...] = random.random(self.shape) * (high - low) + low",
        "another seed",
    ),
    "draws_the_last_twice": (
        UNIFORM
        + "\n    drawn = np.random.default_rng(context.seed).random(self.size) * (high - low) + low"
        + "\n    drawn[1:][-1:] = drawn[:-1][-1:]"
        + "\n    self[...] = drawn.reshape(self.shape)",
        "it is an earlier number again",
    ),
    "ignores_the_stream": (
        # Raw: it gets a stream to enqueue on, but computes immediately.
        '@library.operator("aten::add.Tensor", dtypes=DTYPES, strided=True, raw=True)\n'
        "def add(context, self, other, alpha, out):\n"
        "    from isthmus.opset.library import as_array\n"
        "    x, y, z = as_array(self), as_array(other), as_array(out)\n"
        "    store(z, wide(x) + wide(y))",
        "on another stream",
    ),
    "crashes": (
        _add(f"import os, signal\nif self.size == 0: os.kill(os.getpid(), signal.SIGSEGV)\n{ADDED}"),
        "SIGSEGV",
    ),
    "borrows_its_input": (
        # Right after the call, and yet wrong: another stream may read the input meanwhile.
        _add(
            """
            kept = other.copy()
            other *= other.dtype.type(alpha)
            store(out, wide(self) + wide(other))
            other[...] = kept
            """
        ).replace("DTYPES", '("float32",)'),  # each crash starts another worker
        "with read-only inputs: it writes to an input during the call",
    ),
    "needs_torch": (_add(f"import torch; {ADDED}"), "torch"),
}


def write_library(folder: Path, name: str, body: str = RIGHT) -> Path:
    """A library file of that name."""
    file = folder / f"{name}.py"
    file.write_text(HEAD.replace("NAME", name) + "\n" + body + "\n")
    return file
