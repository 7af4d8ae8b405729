"""Wrong arguments for the aclnn functions of libopapi.so."""

import ctypes
import random
from collections.abc import Callable
from typing import Any

import torch

from isthmus_ascend.generate.table import Row
from tests.runtime.cases import OUT, arguments
from tests.runtime.opapi import C_TYPES
from tests.runtime.opapi import DATA_TYPES as KNOWN
from tools.ascend.fuzz_runtime import FOREIGN, Given

MIB = 1 << 20
DATA_TYPES = (0, 0, 0, 1, 2, 3, 3, 4, 6, 7, 9, 9, 11, 12, 16, 17, 27, 35, 36, 5, 99, -1)
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 8)
WRONG_SIZES = (-1, 1000, 1 << 20, 1 << 33, 1 << 62, (1 << 63) - 1)
WRONG_STRIDES = (0, 0, 1, 2, -1, 1 << 33, 1 << 62)
NUMBERS = (0, 0, 1, 1, 2, 3, 4, 8, -1, -2, 100, 1 << 31, -(1 << 31), 1 << 62, -(1 << 63))
REALS = (0.0, 1.0, 0.5, -1.0, 1e-5, 1e300, float("inf"), float("nan"))
TEXTS = (None, b"", b"sum", b"mean", b"half", b"BSH", b"BNSD", b"TND", b"x" * 1000, b"\xff\xfe")
LIST_LENGTHS = (0, 1, 1, 2, 2, 3, 4, 7)
PHASE_ONE = "GetWorkspaceSize"


class Operands:
    """Creates and destroys objects of libopapi.so."""

    def __init__(self, given: Given, random: random.Random) -> None:
        self.library, self.random, self.given = given.libraries["libopapi.so"], random, given
        self.runtime = given.libraries["libascendcl.so"]
        self.memory = ctypes.c_void_p()
        self.runtime.aclrtMalloc(ctypes.byref(self.memory), ctypes.c_size_t(8 * MIB), 0)
        numbers = b"".join(random.choice(NUMBERS[:12]).to_bytes(8, "little", signed=True) for _ in range(512))
        for start in range(0, MIB, len(numbers)):
            ctypes.memmove((self.memory.value or 0) + start, numbers, len(numbers))
        self.live: list[tuple[str, int]] = []
        self.dead: list[int] = []

    def create(self, what: str, *values: Any) -> int:
        function = getattr(self.library, f"aclCreate{what}")
        function.restype = ctypes.c_void_p
        made = function(*values)
        if made:
            self.live.append((what, made))
        return made or 0

    def tensor(self, like: torch.Tensor | None = None) -> int:
        """Return a tensor near the given one, or any."""
        draw, random = self.random.choice, self.random
        wrong = random.random() < (0.4 if like is None else 0.1)
        if like is None:
            sizes = [draw(SIZES) for _ in range(random.choice((0, 1, 2, 2, 3, 3, 4, 5)))]
            dtype = draw(DATA_TYPES)
        else:
            sizes, dtype = list(like.shape), KNOWN[like.dtype]
        if wrong and sizes:
            sizes[random.randrange(len(sizes))] = draw(WRONG_SIZES)
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= max(size, 1)
        if random.random() < 0.15 and sizes:
            strides[random.randrange(len(sizes))] = draw(WRONG_STRIDES)
        offset = draw((0, 0, 0, 0, 0, 1, -1, 1 << 40, 1 << 62))
        data = draw([self.memory.value] * 5 + [0])
        array = ctypes.c_int64 * len(sizes)
        return self.create(
            "Tensor", array(*_signed_values(sizes)), ctypes.c_uint64(len(sizes)), ctypes.c_int(dtype),
            array(*_signed_values(strides)), ctypes.c_int64(offset), ctypes.c_int(2), array(*_signed_values(sizes)),
            ctypes.c_uint64(len(sizes)), ctypes.c_void_p(data),
        )  # fmt: skip

    def scalar(self, like: Any = None) -> int:
        value: Any = ctypes.c_int64(self.random.choice(NUMBERS))
        kind = 9
        if self.random.random() < 0.5 or isinstance(like, float):
            value, kind = ctypes.c_double(self.random.choice(REALS) if like is None else float(like.real)), 11
        return self.create("Scalar", ctypes.byref(value), ctypes.c_int(kind))

    def handle(self, make: Callable[[], int]) -> int:
        """Return what was made, or now and then null, a destroyed handle, a foreign one or one of another kind."""
        if self.random.random() > 0.12:
            return make()
        others = [handle for _, handle in self.live] + self.dead + list(FOREIGN) + [0, 0]
        return self.random.choice(others)

    def several(self, what: str, make: Callable[[Any], int], like: Any) -> int:
        given = list(like) if isinstance(like, (list, tuple)) else [None] * self.random.choice(LIST_LENGTHS)
        if self.random.random() < 0.15:
            given = given[: self.random.choice(LIST_LENGTHS)]
        elements = [self.handle(lambda value=value: make(value)) for value in given]  # type: ignore[misc]
        made = set(elements)
        handle = self.create(
            f"{what}List", (ctypes.c_void_p * len(elements))(*elements), ctypes.c_uint64(len(elements))
        )
        self.live = [entry for entry in self.live if entry[1] not in made]  # destroyed with the list
        return handle

    def array(self, kind: str, like: Any) -> int:
        what, element, values = {
            "ints": ("IntArray", ctypes.c_int64, NUMBERS),
            "floats": ("FloatArray", ctypes.c_float, REALS),
            "bools": ("BoolArray", ctypes.c_bool, (True, False)),
        }[kind]
        given = [self.random.choice(values) for _ in range(self.random.choice(LIST_LENGTHS))]
        if isinstance(like, (list, tuple)) and self.random.random() < 0.8:
            given = list(like)
        if given and self.random.random() < 0.2:
            given[self.random.randrange(len(given))] = self.random.choice(values)
        return self.create(what, (element * len(given))(*given), ctypes.c_uint64(len(given)))

    def argument(self, kind: str, like: Any) -> Any:
        """Return a C value of this kind, often near the value of a valid call."""
        if like is OUT or self.random.random() < 0.1:
            like = None
        makers: dict[str, Callable[[], int]] = {
            "tensor": lambda: self.tensor(like),
            "tensors": lambda: self.several("Tensor", self.tensor, like),
            "scalar": lambda: self.scalar(like),
            "scalars": lambda: self.several("Scalar", self.scalar, like),
            **dict.fromkeys(("ints", "floats", "bools"), lambda: self.array(kind, like)),
        }
        if kind in makers:
            return ctypes.c_void_p(self.handle(makers[kind]))
        if kind == "string":
            return ctypes.c_char_p(
                like.encode() if like and self.random.random() < 0.8 else self.random.choice(TEXTS)
            )
        if kind == "dtype":
            return ctypes.c_int32(KNOWN[like] if like else self.random.choice(DATA_TYPES))
        exact = like is not None and self.random.random() < 0.8
        if kind in ("double", "float"):
            return C_TYPES[kind](like if exact else self.random.choice(REALS))
        return C_TYPES[kind](like if exact else self.random.choice(NUMBERS))

    def destroy(self) -> None:
        for what, handle in self.live:
            getattr(self.library, f"aclDestroy{what}")(ctypes.c_void_p(handle))
        self.dead = [handle for _, handle in self.live][:8]
        self.live = []


def _signed_values(values: list[int]) -> list[int]:
    return [max(min(value, (1 << 63) - 1), -(1 << 63)) for value in values]


def caller(row: Row) -> Callable[[random.Random, int, Callable[[str], None]], None]:
    """Return what calls both phases of the function so many times."""

    def run(random: random.Random, calls: int, note: Callable[[str], None]) -> None:
        torch.set_num_threads(1)
        operands = Operands(Given(), random)
        phase_one = getattr(operands.library, f"aclnn{row.name}{PHASE_ONE}")
        phase_two = getattr(operands.library, f"aclnn{row.name}")
        has_case = not any(text in row.program for text in ("(...)", "generator("))
        valid: list[Any] = arguments(row) if has_case else [None] * len(row.parameters)
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        null = ctypes.c_void_p()
        for call in range(calls):
            near = random.random() < 0.7
            values = [
                operands.argument(kind, like if near else None)
                for (kind, _), like in zip(row.parameters, valid, strict=True)
            ]
            note(f"call {call}: {row.name}({', '.join(str(v.value) for v in values)})")
            if phase_one(*values, ctypes.byref(size), ctypes.byref(executor)) == 0:
                note(f"call {call}, phase 2: {row.name}({', '.join(str(v.value) for v in values)})")
                phase_two(null, ctypes.c_uint64(0), executor, null)
                operands.runtime.aclrtSynchronizeDevice()
            if random.random() < 0.1:
                wrong = random.choice([executor, null, ctypes.c_void_p(FOREIGN[1])])
                phase_two(null, ctypes.c_uint64(0), wrong, null)
            operands.destroy()

    return run
