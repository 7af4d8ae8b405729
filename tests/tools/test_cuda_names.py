"""The table of CUDA's names that libraries use."""

from isthmus import shim
from tools import cuda_names

SOURCE = """
import torch
from torch.cuda import Stream
def f(x):
    torch.cuda.synchronize()
    torch.cuda.current_device().real
    torch._C._cuda_getCurrentRawStream(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.zeros(1), other.cuda.thing
"""


def test_names_are_read_from_source() -> None:
    assert sorted(cuda_names.used_names(SOURCE)) == [
        "torch._C._cuda_getCurrentRawStream",
        "torch.backends.cuda.matmul.allow_tf32",
        "torch.cuda.Stream",
        "torch.cuda.current_device",
        "torch.cuda.synchronize",
    ]
    assert not list(cuda_names.used_names("print 'python 2'"))


def test_answers() -> None:
    with shim.enter():
        assert cuda_names.answer("torch.cuda.synchronize") == ("answered", "")
        assert cuda_names.answer("torch.backends.cuda.matmul.allow_tf32") == ("answered", "")
        assert cuda_names.answer("torch.cuda.no_such_name")[0] == "absent"
        state, why = cuda_names.answer("torch.cuda.memory.CUDAPluggableAllocator")
        assert state == "refused" and why
