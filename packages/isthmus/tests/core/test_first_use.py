"""Any call may be the first one for a device, which registers routes, layouts and kernels."""

import pytest

from tests.helpers.children import output

CALLS = {
    "sparse without values": (
        "torch.sparse_coo_tensor(size=(2, 2), device='chip').shape",
        "torch.Size([2, 2])",
    ),
    "sparse": ("torch.sparse_coo_tensor([[0]], [1.0], (2,), device='chip').sum().item()", "1.0"),
    "compressed": ("torch.empty(2, 2, layout=torch.sparse_csr, device='chip').layout", "torch.sparse_csr"),
    "quantized": (
        "torch._empty_affine_quantized([2], scale=0.5, zero_point=1, dtype=torch.qint8, device='chip').q_scale()",
        "0.5",
    ),
    "nested": ("torch.nested.nested_tensor([torch.ones(2)], device='chip').size(0)", "1"),
    "indices": ("torch.tril_indices(2, 2, device='chip').tolist()", "[[0, 1, 1], [0, 0, 1]]"),
    "zeros": ("torch.zeros(2, device='chip').tolist()", "[0.0, 0.0]"),
    "generator": (
        "torch.randn(2, device='chip', generator=torch.Generator('chip')).shape",
        "torch.Size([2])",
    ),
    "route": ("isthmus._C.routes()['aten::add.Tensor'][0] != ''", "True"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_first_call(name: str) -> None:
    code, expected = CALLS[name]
    assert output(f"import torch, isthmus._C\nprint({code})") == expected


AUTOCAST = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    x = torch.empty(4, 4, device="chip")
    with torch.autocast("chip", dtype=torch.float16):
        print((x @ x).dtype, torch.nn.functional.linear(x, x).dtype, torch.relu(x).dtype)
"""


def test_autocast_of_fake_tensors_needs_no_use() -> None:
    assert output(AUTOCAST) == "torch.float16 torch.float16 torch.float32"


RULE = """
import torch
lib = torch.library.Library("aten", "IMPL")
def product(a, b):
    with torch.amp.autocast("chip", enabled=False):
        return torch.mm(a.double(), b.double())
lib.impl("mm", product, "AutocastPrivateUse1", allow_override=True)
one = torch.ones(2, 2, device="chip")
with torch.autocast("chip"):
    print(torch.mm(one, one).dtype)
"""


def test_a_rule_that_is_registered_before_the_first_use_holds() -> None:
    assert output(RULE) == "torch.float64"


RACE = """
import threading, torch
start, found = threading.Barrier(8), []
def use(index):
    start.wait()
    found.append((torch.ones(3, device="chip") * index).sum().item())
threads = [threading.Thread(target=use, args=(index,)) for index in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(found))
"""


def test_threads_race_for_the_first_use() -> None:
    assert output(RACE) == str([3.0 * index for index in range(8)])
