"""A second library reports its own backend names, one of which is spelled cuda and has nothing to do with torch."""

# answer: compiled
# answer: interpreted
# answer: ['CPUExecutionProvider']
# answer: 2.0 True
import torch


class ArrayLibrary:
    """Stands for an array package that was built with its own GPU support."""

    def __init__(self, built_with):
        self._built_with = bytes(built_with).decode()

    def default_backend(self):
        return self._built_with


def plan(lib):
    if lib.default_backend() == "cuda":
        return "compiled"
    return "interpreted"


def session_providers(available, skip="CUDAExecutionProvider"):
    return [name for name in available if name != skip]


print(plan(ArrayLibrary([99, 117, 100, 97])))
print(plan(ArrayLibrary(b"rocm")))
offered = [stem + "ExecutionProvider" for stem in ("CU" + "DA", "CPU")]
print(session_providers(offered))
t = torch.tensor([1.0, 3.0], device="cuda")
print(t.mean().item(), t.device.type == "cuda")
