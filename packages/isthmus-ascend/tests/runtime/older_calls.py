"""Calls of operators of the older interface through aclopCompileAndExecute(), compared with what they mean."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from tests.runtime.older_jobs import ND, Operands, compiler
from tests.runtime.opapi import DATA_TYPES
from tests.runtime.runtime import acl, download, upload

HOST = 2  # aclMemType: memory of the host, of any value
acl.raw.aclopCreateAttr.restype = ctypes.c_void_p
ran: set[str] = set()


def content(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor."""
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())


class Tensors(Operands):
    """Operands of tensors; a number or a list of integers lies on the host."""

    def add(self, value: Any) -> "Tensors":
        """Add a tensor, a float, a list of integers, or None for an input that is left out."""
        if value is None:
            self.descriptions.append(acl.raw.aclCreateTensorDesc(-1, 0, None, ND))
            self.buffers.append(acl.raw.aclCreateDataBuffer(None, ctypes.c_size_t(0)))
            return self
        tensor = torch.as_tensor(value)
        sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        self.descriptions.append(
            acl.raw.aclCreateTensorDesc(DATA_TYPES[tensor.dtype], tensor.dim(), sizes, ND)
        )
        data = content(tensor)
        address: Any = upload(data) if isinstance(value, torch.Tensor) else None
        if address is None:
            acl.aclSetTensorPlaceMent(self.descriptions[-1], HOST)
            self.hosts.append(ctypes.create_string_buffer(data, len(data)))
            address = ctypes.addressof(self.hosts[-1])
        self.addresses.append(address)
        self.buffers.append(acl.raw.aclCreateDataBuffer(ctypes.c_void_p(address), ctypes.c_size_t(len(data))))
        return self

    def __init__(self, *values: Any) -> None:
        super().__init__()
        self.addresses: list[int] = []
        for value in values:
            self.add(value)


def attributes(values: dict[str, Any]) -> int:
    """Return a handle of attributes of these values."""
    made: int = acl.raw.aclopCreateAttr()
    for name, value in values.items():
        key = name.encode()
        if isinstance(value, bool):
            acl.aclopSetAttrBool(made, key, ctypes.c_uint8(value))
        elif isinstance(value, int):
            acl.aclopSetAttrInt(made, key, ctypes.c_int64(value))
        elif isinstance(value, float):
            acl.aclopSetAttrFloat(made, key, ctypes.c_float(value))
        elif isinstance(value, str):
            acl.aclopSetAttrString(made, key, value.encode())
        else:
            acl.aclopSetAttrListInt(made, key, len(value), (ctypes.c_int64 * len(value))(*value))
    return made


def run(
    name: str, inputs: Sequence[Any], outputs: Sequence[torch.Tensor], **given: Any
) -> list[torch.Tensor]:
    """Return the outputs of an operator; `outputs` gives their contents before it."""
    ran.add(name)
    results = Tensors(*outputs)
    sources = Tensors(*inputs)
    operands = (*sources.lists(), *results.lists(), attributes(given))
    compiler.aclopCompileAndExecute(name.encode(), *operands, 0, 0, None, None)
    acl.aclrtSynchronizeStream(None)
    read = []
    for address, output in zip(results.addresses, outputs, strict=True):
        data = bytearray(download(address, output.numel() * output.element_size()))
        read.append(torch.frombuffer(data, dtype=output.dtype).reshape(output.shape))
    return read


def check(name: str, inputs: Sequence[Any], *expected: torch.Tensor, **given: Any) -> None:
    """Compare the outputs of an operator."""
    outputs = run(name, inputs, [torch.zeros_like(each) for each in expected], **given)
    torch.testing.assert_close(outputs, list(expected), equal_nan=True)
