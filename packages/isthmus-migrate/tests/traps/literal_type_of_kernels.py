"""A typing.Literal lists names of code generators; its values are checked against a letter count, not a device."""

# answer: ['clang', 'cu', 'opencl']
# answer: .cu
# answer: bad target
# answer: True
from typing import Literal, get_args

import torch

Target = Literal["cuda", "clang", "opencl"]
SUFFIX: dict[Target, str] = {"cuda": ".cu", "clang": ".c", "opencl": ".cl"}


def emit(target: Target) -> str:
    if target not in get_args(Target):
        raise ValueError("bad target")
    return SUFFIX[target]


def read_target(header: str) -> str:
    # first comment line of a generated source file, "// target: NAME"
    return header.split(":")[1].strip()


short = sorted(name.removesuffix("da") for name in get_args(Target))
print(short)
print(emit(read_target("// target: cuda")))
try:
    emit("metal")
except ValueError as err:
    print(err)
x = torch.full((2,), 3.0, device=torch.device("cuda"))
print(bool((x == 3).all()) and x.is_cuda)
