"""What the rules cannot be sure of stays as it is, and is reported."""

from __future__ import annotations

import pytest

from isthmus.migrate.convert.engine import convert_source

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
    assert [finding.subject for finding in result.findings] == ["import torch"]
