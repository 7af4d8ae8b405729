"""Uncertain code is not changed but reported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from isthmus_migrate.convert import project
from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source import versions
from isthmus_migrate.source.findings import Severity
from isthmus_migrate.source.versions import Version
from isthmus_migrate.source.visible_devices import loaded_before

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


COUNTED = (
    'torch.accelerator.current_accelerator() if torch.accelerator.device_count() else torch.device("cpu")'
)
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
def test_before_devices_are_chosen_in_a_function_the_constant_only_counts_them(setting: str) -> None:
    source = IN_FUNCTION.format(setting)
    result = convert_source(source, "a.py")
    assert f"\nDEVICE = {COUNTED}\n" in result.text
    assert [each.severity for each in result.findings if each.code == "IM129"] == [Severity.REVIEW]
    assert convert_source(result.text, "a.py").text == result.text
    assert versions.minimum(source, result.text) == (2, 8)


@pytest.mark.parametrize(("version", "lines"), [((2, 7), [9]), ((2, 8), [])])
def test_before_2_8_no_form_of_the_constant_leaves_cuda_uninitialized(
    version: Version, lines: list[int]
) -> None:
    source = IN_FUNCTION.format('os.environ["CUDA_VISIBLE_DEVICES"] = gpu')
    found = convert_source(source, "a.py", torch=version).findings
    assert [each.line for each in found if "so it has no effect" in each.message] == lines
    fixed = convert_source(source, "a.py", "npu", torch=version).findings  # is not queried
    assert not any("so it has no effect" in each.message for each in fixed)


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ('import torch\nx.cuda()\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', {"torch", "main"}),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "1"\nimport model\nx.cuda()\n', set()),
        (
            'import model\nif __name__ == "__main__":\n    os.environ["CUDA_VISIBLE_DEVICES"] = "1"\n',
            {"model"},
        ),
        ('from .model import x\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', {"main"}),
        ('def f():\n    os.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', {"main"}),  # for modules that import it
        ('def f():\n    child["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]\n', set()),
    ],
)
def test_modules_that_are_loaded_before_devices_are_chosen(source: str, modules: set[str]) -> None:
    assert loaded_before(ast.parse(source), "main") == modules


@pytest.mark.parametrize(
    ("main", "counts"),
    [
        ('import os\n\nimport model\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n', True),
        ('import os\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\nimport model\n', False),
        ('import os\n\nimport numpy\n\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\nimport model\n', False),
    ],
)
def test_the_constant_of_a_module_that_is_loaded_before_another_chooses_devices(
    tmp_path: Path, main: str, counts: bool
) -> None:
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "model.py").write_text("import torch\n\ny = x.cuda()\n")
    converted = {each.name: each.after.decode() for each in project.convert(tmp_path, project.Request())}
    assert (COUNTED in converted["model.py"]) is counts


def test_an_availability_test_is_not_answered_by_a_constant_of_before_the_choice() -> None:
    source = IN_FUNCTION.format(
        'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"\n'
        "    if torch.cuda.is_available():\n        pass\n    elif torch.xpu.is_available():\n        pass"
    )
    after = convert_source(source, "a.py").text
    assert 'if torch.accelerator.is_available() and DEVICE.type != "xpu":' in after


def test_mixed_precision_with_a_condition_of_its_own_is_also_off_on_the_cpu() -> None:
    result = convert_source("import torch\ntorch.autocast('cuda', enabled=on, **given)\n", "a.py")
    assert "torch.autocast(DEVICE.type, enabled=on and DEVICE.type != 'cpu', **given)\n" in result.text
    assert [each.severity for each in result.findings] == [Severity.AUTOMATIC]


def test_an_f_string_that_prints_its_source_stays() -> None:
    source = "import torch\nprint(f'{torch.cuda.device_count() * 0=}')\n"
    result = convert_source(source, "a.py")
    assert result.text == source
    (left,) = (each for each in result.findings if each.severity is Severity.MANUAL)
    assert left.message.endswith("inside an f-string")
