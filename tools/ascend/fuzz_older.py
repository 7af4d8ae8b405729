"""Wrong arguments for operators of the older interface, through aclopCompileAndExecute()."""

import ctypes
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from isthmus_ascend.generate.table import older_rows
from tools.ascend.fuzz_operators import DATA_TYPES, LIST_LENGTHS, MIB, NUMBERS, REALS, SIZES, WRONG_SIZES
from tools.ascend.fuzz_runtime import FOREIGN, Given

ND, HOST = 2, 2
HOST_BYTES = 8 * 64
SQUARE = torch.arange(12.0).reshape(3, 4)
# Inputs, outputs and attributes of the operators of libacl_op_compiler.so, and of those of random numbers.
VALID: dict[str, list[tuple[Sequence[Any], Sequence[Any], Mapping[str, Any]]]] = {
    "Identity": [([SQUARE], [SQUARE], {})],
    "AsStrided": [([SQUARE, [2, 3], [1, 4], [2]], [SQUARE], {})],
    "ViewCopy": [([SQUARE, [2, 2], [6, 2], [1], SQUARE, [2, 2], [1, 3], [0]], [SQUARE], {})],
    "Transpose": [([SQUARE, [1, 0]], [SQUARE], {})],
    "DropOutGenMaskV3": [([[16], 0.5], [torch.zeros(16, dtype=torch.uint8)], {"seed": 1, "seed2": 0})],
    "StatelessRandomNormalV2": [([[3, 4], [5], [0, 8], torch.tensor(1).int()], [SQUARE], {"dtype": 0})],
}


def _valid_calls(name: str) -> list[tuple[Sequence[Any], Sequence[Any], Mapping[str, Any]]]:
    """Return the calls of an operator's tests."""
    from tests.runtime import older_calls, older_operators

    if name in VALID:
        return VALID[name]
    calls: list[tuple[Sequence[Any], Sequence[Any], Mapping[str, Any]]] = []

    def check(called: str, inputs: Sequence[Any], *expected: Any, **given: Any) -> None:
        if called == name:
            calls.append((inputs, expected, given))

    def run(called: str, inputs: Sequence[Any], outputs: Sequence[Any], **given: Any) -> Any:
        check(called, inputs, *outputs, **given)
        return older_calls.run(called, inputs, outputs, **given)

    older_operators.check = check
    older_operators.run = run
    for part in older_operators.PARTS:
        part()
    return calls


class Operands:
    """Descriptions, buffers and attributes, near those of a valid call."""

    def __init__(self, given: Given, random: random.Random) -> None:
        self.acl, self.random = given.libraries["libascendcl.so"], random
        for name in ("aclCreateTensorDesc", "aclCreateDataBuffer", "aclopCreateAttr"):
            getattr(self.acl, name).restype = ctypes.c_void_p
        memory = ctypes.c_void_p()
        self.acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(MIB), 0)
        self.device = memory.value or 0
        self.hosts = [ctypes.create_string_buffer(HOST_BYTES) for _ in range(16)]
        self.made: list[int] = []

    def draw(self, valid: Any, wrong: Sequence[Any], rate: float = 0.04) -> Any:
        return self.random.choice(wrong) if self.random.random() < rate else valid

    def ints(self, like: Sequence[int]) -> list[int]:
        """Return these integers, or some others."""
        others = [self.random.choice(NUMBERS) for _ in range(self.random.choice(LIST_LENGTHS))]
        return self.draw([self.draw(value, NUMBERS) for value in like], [others])  # type: ignore[no-any-return]

    def operand(self, like: Any) -> tuple[int, int]:
        """Return a description and a buffer; now and then either is another object or none."""
        from tests.runtime.older_calls import content
        from tests.runtime.opapi import DATA_TYPES as KNOWN

        on_host = like is not None and not isinstance(like, torch.Tensor)
        tensor = torch.as_tensor(self.ints(like) if isinstance(like, list) else 0.0 if like is None else like)
        sizes = [self.draw(size, (*SIZES, *WRONG_SIZES), 0.02) for size in tensor.shape]
        data, address = content(tensor), self.device + 64 * self.random.randrange(64)
        if on_host:
            address = ctypes.addressof(self.random.choice(self.hosts))
        ctypes.memmove(address, data, min(len(data), HOST_BYTES))
        dtype = -1 if like is None else self.draw(KNOWN[tensor.dtype], DATA_TYPES)
        array = (ctypes.c_int64 * len(sizes))(*sizes)
        description = self.acl.aclCreateTensorDesc(dtype, len(sizes), array, ND)
        if self.draw(on_host, (True, False)):
            self.acl.aclSetTensorPlaceMent(ctypes.c_void_p(description), HOST)
        size = self.draw(len(data), (0, 1, 8, 1 << 40, (1 << 64) - 1))
        buffer = self.acl.aclCreateDataBuffer(
            ctypes.c_void_p(self.draw(address, (0, *FOREIGN))), ctypes.c_size_t(size)
        )
        self.made += [description or 0, buffer or 0]
        wrong = (0, *FOREIGN, *self.made)
        return self.draw(description, wrong, 0.01), self.draw(buffer, wrong, 0.01)

    def lists(self, like: Sequence[Any]) -> list[Any]:
        """Return the number of operands, their descriptions and their buffers."""
        pairs = [self.operand(value) for value in like[: self.draw(len(like), LIST_LENGTHS)]]
        kind = ctypes.c_void_p * len(pairs)
        return [len(pairs), *(kind(*(pair[i] for pair in pairs)) for i in (0, 1))]

    def attributes(self, like: Mapping[str, Any]) -> Any:
        """Return attributes; now and then one is absent, or of another kind."""
        others = (True, 1, 1.0, "iou", [1, 2], [1.0])
        made = ctypes.c_void_p(self.acl.aclopCreateAttr())
        self.made.append(made.value or 0)
        for name, valid in like.items():
            key, value = name.encode(), self.draw(valid, (*others, None))
            if isinstance(value, bool):
                self.acl.aclopSetAttrBool(made, key, ctypes.c_uint8(value))
            elif isinstance(value, int):
                self.acl.aclopSetAttrInt(made, key, ctypes.c_int64(self.draw(value, NUMBERS)))
            elif isinstance(value, float):
                self.acl.aclopSetAttrFloat(made, key, ctypes.c_float(self.draw(value, REALS)))
            elif isinstance(value, str):
                self.acl.aclopSetAttrString(made, key, value.encode())
            elif value and isinstance(value[0], float):
                array = (ctypes.c_float * len(value))(*(self.draw(each, REALS) for each in value))
                self.acl.aclopSetAttrListFloat(made, key, len(value), array)
            elif value is not None:
                ints = self.ints(value)
                self.acl.aclopSetAttrListInt(made, key, len(ints), (ctypes.c_int64 * len(ints))(*ints))
        return ctypes.c_void_p(self.draw(made.value, (0, *FOREIGN, *self.made), 0.02))

    def destroy(self) -> None:
        for name in ("aclDestroyTensorDesc", "aclDestroyDataBuffer", "aclopDestroyAttr"):
            for handle in self.made:
                getattr(self.acl, name)(ctypes.c_void_p(handle))
        self.made = []


def caller(name: str) -> Callable[[random.Random, int, Callable[[str], None]], None]:
    """Return what calls the operator so many times."""

    def run(random: random.Random, calls: int, note: Callable[[str], None]) -> None:
        torch.set_num_threads(1)
        given = Given()
        operands, valid = Operands(given, random), _valid_calls(name)
        execute = given.libraries["libacl_op_compiler.so"].aclopCompileAndExecute
        for call in range(calls):
            inputs, outputs, attributes = random.choice(valid)
            arguments = [*operands.lists(inputs), *operands.lists(outputs), operands.attributes(attributes)]
            note(f"call {call}: {name} near {inputs}, {attributes}")
            execute(name.encode(), *arguments, 0, 0, None, None)
            operands.acl.aclrtSynchronizeDevice()
            operands.destroy()

    return run


def names() -> list[str]:
    """Return the operators of the older interface."""
    return sorted({row.name for row in older_rows()} | set(VALID))
