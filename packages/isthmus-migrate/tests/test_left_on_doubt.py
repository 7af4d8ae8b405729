"""Places that are left since a conversion may change what they do: probes, assigned functions, TorchScript."""

from __future__ import annotations

import pytest

from tests.helpers.conversion import convert

_NET = """from torch import nn
class M(nn.Module):
    def forward(self, x):
        return torch.zeros(1, device='cuda')
"""


def _left(source: str) -> list[str]:
    return [each.message for each in convert(source).findings if not each.edits]


@pytest.mark.parametrize(
    "call",
    [
        "torch.zeros(1).cuda()",
        'torch.zeros(1, device="cuda")',
        'torch.zeros(1, device=torch.device("cuda"))',
        'torch.zeros(1).to("cuda")',
        "torch.cuda.init()",
        "x = torch.cuda.get_device_name(0)",
        "torch.cuda.current_device()",
    ],
)
@pytest.mark.parametrize("caught", ["", " Exception", " (RuntimeError, AssertionError) as e"])
def test_a_probe_is_left(call: str, caught: str) -> None:
    source = f"try:\n    {call}\nexcept{caught}:\n    x = None\n"
    assert convert(source).text == f"import torch\n{source}"
    assert "which the handler of the `try` in line 2 catches" in " ".join(_left(source))


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    x.cuda()\nexcept ValueError:\n    pass\n",
        "try:\n    x.cuda()\nexcept RuntimeError as e:\n    if 'out of memory' not in str(e):\n        y = 1\n",
        "try:\n    x.cuda()\nexcept Exception as e:\n    print(e)\n    raise\n",
        "try:\n    x.cuda()\nexcept Exception:\n    errors.put(traceback.format_exc())\n",
        "if torch.cuda.is_available():\n    try:\n        x.cuda()\n    except Exception:\n        pass\n",
        "try:\n    def f(x):\n        return x.cuda()\nexcept Exception:\n    f = None\n",
        "try:\n    torch.cuda.empty_cache()\nexcept Exception:\n    pass\n",
    ],
)
def test_a_handler_of_something_else_leaves_nothing(source: str) -> None:
    assert not [each for each in _left(source) if "catches" in each]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        (
            'torch.cuda.is_available = lambda: False\nd = "cuda" if torch.cuda.is_available() else "cpu"\nx.to(d)\n',
            "depends on torch.cuda.is_available, which line 2 assigns",
        ),
        ("torch.Tensor.cuda = f\nx.cuda()\n", "depends on torch.Tensor.cuda, which line 2 assigns"),
        ("torch.nn.Module.cuda = f\nx.cuda()\n", "depends on torch.nn.Module.cuda, which line 2 assigns"),
        ("torch.cuda.synchronize = f\ntorch.cuda.synchronize()\n", "depends on torch.cuda.synchronize"),
        ("torch.cuda.synchronize = f\n", "is assigned; converted code does not call it"),
    ],
)
def test_an_assigned_function_and_what_depends_on_it_are_left(source: str, left: str) -> None:
    assert convert(source).text == f"import torch\n{source}"
    assert left in " ".join(_left(source))


def test_an_assignment_in_a_function_leaves_the_rest_of_the_module() -> None:
    source = "def test():\n    torch.Tensor.cuda = f\n    a.cuda()\nb.cuda()\n"
    assert convert(source).text.endswith("    a.cuda()\nb.to(DEVICE)\n")


@pytest.mark.parametrize(
    "compiled",
    [
        "torch.jit.script(M().cuda())",
        "m = M().cuda()\ns = torch.jit.script(m)",
        "m = M()\nk = m.to(d).eval()\ns = torch.jit.script(k)",
        "def make():\n    return M().cuda()\ns = torch.jit.script(make())",
        "def export(model):\n    return torch.jit.script(model)",
        "def f():\n    return torch.jit.script(net)\nnet = M()",
    ],
)
def test_a_compiled_module_gets_no_device_of_its_file(compiled: str) -> None:
    assert "device='cuda'" in convert(f"{_NET}{compiled}\n").text


@pytest.mark.parametrize(
    "compiled", ["torch.jit.script(f)\ndef f(x):\n    return x", "torch.jit.script(nn.ReLU())"]
)
def test_a_module_that_is_not_compiled_is_converted(compiled: str) -> None:
    assert "device=DEVICE.type" in convert(f"{_NET}{compiled}\n").text


@pytest.mark.parametrize(
    "text",
    ["json.loads('{\"device\": \"cuda\", \"n\": 1}')", 'yaml.safe_load("""\nname: a\ndevice: cuda:0\n""")',
     "json.loads('{\"dist_backend\": \"nccl\"}')"],
)  # fmt: skip
def test_a_setting_in_a_string_is_listed(text: str) -> None:
    assert "may be JSON or YAML" in _left(f"import json, yaml\nc = {text}\n")[0]


@pytest.mark.parametrize("text", ['json.loads(\'{"name": "cuda"}\')', 'print("device: cuda")'])
def test_other_strings_are_not_settings(text: str) -> None:
    assert not [each for each in _left(f"import json\nc = {text}\n") if "may be JSON" in each]


def test_an_error_of_the_project_itself_is_still_recognised() -> None:
    test = 'try:\n    f()\nexcept RuntimeError as e:\n    if "CUDA out of memory" in str(e):\n        g()\n'
    own = f'def f():\n    raise RuntimeError("CUDA out of memory. Tried")\n{test}'
    assert "isinstance(e, torch.OutOfMemoryError)" in convert(test).text
    assert convert(own).text == f"import torch\n{own}"
    assert "is the message of an error that the project raises itself" in _left(own)
