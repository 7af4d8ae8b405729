"""Uncertain code is not changed but reported."""

from __future__ import annotations

import pytest

from isthmus.migrate.convert.engine import convert_source
from isthmus.migrate.source.findings import Severity

OWN_METHOD = """class Batch:
    def cuda(self):
        return self


batch = Batch().cuda()
"""


@pytest.mark.parametrize(
    "source",
    [
        "x.cuda(where)\n",
        "x.cuda(pick_device())\n",
        "import torch\ntorch.Tensor.cuda(x)\n",
        "from torch import nn\nnn.Module.cuda(self, device)\n",
        "x.cuda(*options)\n",
        "x.cuda(1, True, torch.preserve_format)\n",
        OWN_METHOD,
    ],
)
def test_cuda_of_unknown_meaning(source: str) -> None:
    result = convert_source(source, "a.py")
    assert result.text == source
    assert [finding.code for finding in result.findings] == ["IM101"]


@pytest.mark.parametrize("location", ['{"cuda:0": choose()}', "lambda storage, tag: storage.cuda(where)"])
def test_where_a_checkpoint_goes_is_computed(location: str) -> None:
    source = f"import torch\ntorch.load(path, {location})\n"
    result = convert_source(source, "a.py")
    assert result.text == source
    assert [finding.code for finding in result.findings] == ["IM108"]


@pytest.mark.parametrize(
    "start",
    [
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
        "if TYPE_CHECKING:\n    import torch\n",
    ],
)
def test_a_file_that_may_run_without_torch(start: str) -> None:
    source = start + "\n\ndef move(x):\n    return x.cuda()\n"
    result = convert_source(source, "a.py")
    assert (result.text, list(result.changes)) == (source, [])
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("IM101", Severity.MANUAL)
    assert finding.message.endswith("under an `if` or `try` only: the module cannot define its device")


@pytest.mark.parametrize(
    "end", ["raise", "raise SystemExit(1) from None", "print('no torch')\n    sys.exit(1)"]
)
def test_a_file_that_ends_without_torch_defines_its_device(end: str) -> None:
    start = f"import sys\n\ntry:\n    import torch\nexcept ImportError:\n    {end}\n"
    result = convert_source(start + "\n\ndef move(x):\n    return x.cuda()\n", "a.py")
    assert result.text.startswith(f"{start}\nDEVICE = torch.accelerator.")
    assert "x.to(DEVICE)" in result.text
    assert convert_source(result.text, "a.py").text == result.text


IN_FUNCTION = """import os

import torch

x = torch.zeros(2).cuda()


def main(gpu):
    {}
"""


@pytest.mark.parametrize(
    "setting",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = gpu',
        'os.environ.setdefault("CUDA_VISIBLE_DEVICES", gpu)',
        'os.environ.update({"CUDA_VISIBLE_DEVICES": gpu})',
        "os.environ.update(CUDA_VISIBLE_DEVICES=gpu)",
        'os.putenv("CUDA_VISIBLE_DEVICES", gpu)',
    ],
)
def test_devices_that_are_chosen_in_a_function_come_after_the_constant(setting: str) -> None:
    source = IN_FUNCTION.format(setting)
    found = [each for each in convert_source(source, "a.py").findings if each.code == "IM129"]
    assert [(each.severity, each.line) for each in found] == [(Severity.MANUAL, 9)]
    assert "so it has no effect" in found[0].message
    fixed = convert_source(source, "a.py", "npu").findings  # is not queried
    assert not any("so it has no effect" in each.message for each in fixed)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('import torch\nx.cuda()\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', [3]),
        ('import torch\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\nx.cuda()\n', []),
        ('def main():\n    os.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', [2]),  # for modules that it imports
        ('def main():\n    child["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]\n', []),
        ('def main():\n    os.environ["CUDA_VISIBLE_DEVICES"] = (\n', []),
    ],
)
def test_settings_of_devices_that_come_too_late(source: str, lines: list[int]) -> None:
    found = convert_source(source, "a.py").findings
    assert [each.line for each in found if "so it has no effect" in each.message] == lines


def test_mixed_precision_with_a_condition_of_its_own_is_also_off_on_the_cpu() -> None:
    result = convert_source("import torch\ntorch.autocast('cuda', enabled=on, **given)\n", "a.py")
    assert "torch.autocast(DEVICE.type, enabled=on and DEVICE.type != 'cpu', **given)\n" in result.text
    assert [each.severity for each in result.findings] == [Severity.AUTOMATIC]
