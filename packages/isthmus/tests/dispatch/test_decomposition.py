"""Routes of a chip without a delegate: arguments of every type reach decompositions written in Python."""

from __future__ import annotations

from tests.helpers import children

WITHOUT_DELEGATE = {"ISTHMUS_HOST_DELEGATE": "0"}

TRAINING = """
import copy, warnings, torch
from torch.nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

warnings.simplefilter("ignore")
torch.manual_seed(0)
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
llama = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
cnn = Sequential(Conv2d(3, 8, 3), BatchNorm2d(8), ReLU(), AdaptiveAvgPool2d(1), Flatten(), Linear(8, 10))
tokens, images, labels = torch.randint(64, (2, 16)), torch.randn(4, 3, 8, 8), torch.randint(10, (4,))

def train(model, loss_of, device):
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, device)
        loss.backward()
        optimizer.step()
    return [loss.detach().cpu()] + [p.grad.cpu() for p in model.parameters()]

def llama_loss(model, device):
    logits = model(input_ids=tokens.to(device)).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().to(device))

def cnn_loss(model, device):
    return cross_entropy(model(images.to(device)), labels.to(device))

for model, loss_of in ((llama, llama_loss), (cnn, cnn_loss)):
    torch.testing.assert_close(train(model, loss_of, "chip"), train(model, loss_of, "cpu"))
    print("equal")
"""

ARGUMENTS = """
import warnings, torch
warnings.simplefilter("ignore")
value = torch.arange(6.0, device="chip").view(2, 3)
grad, output = torch.ones(2, 3, device="chip"), torch.log_softmax(value, 1)
aten = torch.ops.aten
result = aten._log_softmax_backward_data(grad, output, 1, torch.float64)
print(result.dtype)
print(aten._softmax_backward_data(grad, torch.softmax(value, 1), 1, torch.float32).dtype)
"""


def test_llama_and_a_cnn_train_as_on_the_cpu() -> None:
    assert children.output(TRAINING, **WITHOUT_DELEGATE).split() == ["equal", "equal"]


def test_a_dtype_reaches_a_decomposition_as_one() -> None:
    assert children.output(ARGUMENTS, **WITHOUT_DELEGATE).split() == ["torch.float64", "torch.float32"]


FACTORIES = """
import torch

for make in (
    lambda device: torch.arange(5, device=device),
    lambda device: torch.arange(9, 1, -2, dtype=torch.float32, device=device),
    lambda device: torch.arange(3, out=torch.zeros(6, device=device)[::2]),
    lambda device: torch.linspace(0, 1, 7, dtype=torch.bfloat16, device=device),
    lambda device: torch.eye(3, 4, dtype=torch.int32, device=device),
):
    made, expected = make("chip").cpu(), make("cpu")
    print(made.dtype == expected.dtype and torch.equal(made, expected))
print(torch.chip.dispatch_stats()["operators"]["aten::arange.start_out"])
"""


def test_ranges_and_identities_need_no_kernel_of_their_own() -> None:
    """The out= overloads lack arguments of the functional ones, which call them."""
    forced = "aten::arange=decomposition,aten::linspace=decomposition,aten::eye=decomposition"
    printed = children.output(FACTORIES, ISTHMUS_DRIVER="numpy", ISTHMUS_ROUTE=forced).splitlines()
    assert printed[:-1] == ["True"] * 5
    assert "'route': 'decomposition'" in printed[-1]


OUT_ALONE = """
import torch
from isthmus.chip.decompositions import DECOMPOSITIONS

del DECOMPOSITIONS["aten::linspace.out"]
torch._import_device_backends()
print(torch.linspace(0, 1, 3, out=torch.empty(3, device="chip")).tolist())
"""


def test_an_out_overload_without_the_functional_ones_arguments_is_not_made_of_it() -> None:
    """linspace.out lacks the dtype and the device of linspace: without its own decomposition it has none."""
    settings = {"ISTHMUS_DRIVER": "numpy", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert children.output(OUT_ALONE, **settings) == "[0.0, 0.5, 1.0]"
    done = children.run(OUT_ALONE, ISTHMUS_ROUTE="aten::linspace.out=decomposition", **settings)
    assert done.returncode != 0
    assert "aten::linspace.out=decomposition: no operator of this driver has that route" in done.stderr


ATTENTION = """
import torch

torch.manual_seed(0)
aten, dtype = torch.ops.aten, torch.float64
query = torch.randn(2, 4, 5, 8, dtype=dtype)
key, value = torch.randn(2, 2, 2, 7, 8, dtype=dtype)
mask = torch.zeros(5, 7, dtype=dtype)
mask[1] = -torch.inf
for causal, bias, scale in ((False, None, None), (True, None, 0.3), (False, mask, None)):
    results = []
    for device in ("cpu", "chip"):
        q, k, v = (each.to(device) for each in (query, key, value))
        options = dict(scale=scale, attn_mask=None if bias is None else bias.to(device))
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **options)
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))  # the CPU's gradients have the query's heads
        gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            torch.cos(out), q, k, v, out, lse, 0.0, causal, **options
        )
        results.append([each.cpu() for each in (out, lse, *gradients)])
    torch.testing.assert_close(*results)
    print("equal")
"""


def test_flash_attention_gives_the_logsumexp_and_gradients() -> None:
    """PyTorch's own decomposition gives the weights in place of the logsumexp."""
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    forced = f"{name}=decomposition,{name}_backward=decomposition"
    assert children.output(ATTENTION, ISTHMUS_DRIVER="numpy", ISTHMUS_ROUTE=forced).split() == ["equal"] * 3


POOL = """
import torch
torch.nn.functional.adaptive_max_pool2d(torch.ones(1, 1, 5, 5, device="chip"), 3)
"""


def test_a_decomposition_may_refuse_its_arguments() -> None:
    """PyTorch's of adaptive_max_pool2d returns NotImplemented unless the sizes divide."""
    forced = {"ISTHMUS_DRIVER": "numpy", "ISTHMUS_ROUTE": "aten::adaptive_max_pool2d=decomposition"}
    assert "does not serve this call" in children.run(POOL, **forced).stderr
    divisible = POOL.replace("5, 5", "6, 6")
    assert children.run(divisible, **forced).returncode == 0


COMPOSITES = """
import torch
values = torch.ones(3, device="chip")
values.conj_physical_()
torch.ones(3, 3, device="chip").addr_(values, values)
print(torch.mode(values).values.item(), torch.kaiser_window(4, device="chip").shape[0])
"""


def test_composites_that_need_kernels_of_a_device_run_whole_on_the_cpu() -> None:
    assert children.output(COMPOSITES, **WITHOUT_DELEGATE).split() == ["1.0", "4"]


CUMPROD = """
import torch
for shape, dim in (((), 0), ((2, 3, 4), 1), ((2, 0, 4), -2)):
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        values = (3 * torch.randn(shape)).to(dtype)
        expected, found = torch.cumprod(values, dim), torch.cumprod(values.to("chip"), dim)
        assert torch.equal(found.cpu(), expected) and found.dtype == expected.dtype
        assert found.stride() == expected.stride()
print(torch.cumprod(torch.tensor([2.0, 3.0], device="chip"), 0, out=torch.empty(2, device="chip")).tolist())
"""


def test_cumprod_is_made_of_products() -> None:
    """Traced gradients of prod call it."""
    assert children.output(CUMPROD, ISTHMUS_DRIVER="numpy") == "[2.0, 6.0]"


THRESHOLD = """
import torch
from torch.nn.functional import threshold
integers = torch.tensor([2**60 + 1, 3, 0, -5])
for x in (integers, integers.int(), integers.half(), torch.tensor([0.1, 0.2]).bfloat16()):
    for bound in (0.1, -0.7, 2):
        assert torch.equal(threshold(x.to("chip"), bound, 7).cpu(), threshold(x, bound, 7)), (x, bound)
print(threshold(integers.to("chip"), 2, 9, inplace=True).tolist())
"""


def test_a_threshold_of_integers_keeps_all_their_digits() -> None:
    assert children.output(THRESHOLD, ISTHMUS_DRIVER="numpy") == f"[{2**60 + 1}, 3, 9, 9]"
