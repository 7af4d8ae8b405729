"""Messages under a converted test: clear phrases are changed, others listed, and compared ones stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.convert.project import Request, convert
from isthmus_migrate.source.findings import Severity
from isthmus_migrate.source.phrases import names_cuda, neutral_phrases

MESSAGE = "import torch\nif not torch.cuda.is_available():\n    raise RuntimeError('CUDA is not available')\n"


def said(text: str) -> str:
    for each in reversed(list(neutral_phrases(text))):
        text = text[: each.start] + each.text + text[each.end :]
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"You have a CUDA device, run with --cuda"', '"You have an accelerator, run with --cuda"'),
        ('"ERROR: cuda is not available."', '"ERROR: no accelerator is available."'),
        ('"Stop. CUDA unavailable"', '"Stop. No accelerator available"'),
        (r"'\nCUDA was not found'", r"'\nNo accelerator was found'"),
        ('"No CUDA GPUs are available"', '"No accelerators are available"'),
        ('"no cuda available"', '"no accelerator available"'),
        ('"only if CUDA is available"', '"only if an accelerator is available"'),
        ('"kernels require CUDA"', '"kernels require an accelerator"'),
        ('"MoE needs CUDA to run"', '"MoE needs an accelerator to run"'),
        ('"requires CUDA 12"', '"requires CUDA 12"'),
        ('"requires CUDA graphs"', '"requires CUDA graphs"'),
        ('"bfloat16 CUDA is not available"', '"bfloat16 CUDA is not available"'),
        ('"torch.cuda is available"', '"torch.cuda is available"'),
        ('"CUDA device-side assertion"', '"CUDA device-side assertion"'),
        ('"non-CUDA devices"', '"non-CUDA devices"'),
    ],
)
def test_a_phrase(before: str, after: str) -> None:
    assert said(before) == after


def test_options_and_code_do_not_name_cuda_as_a_word() -> None:
    assert names_cuda("run with --cuda or --no-cuda, torch.cuda.is_available(), CUDA_HOME, x.cuda()") == 0
    assert names_cuda("CUDA. cuda, Cuda! cuda:0") == 4


def test_a_message_on_its_own_stays() -> None:
    text = "import torch\nx.cuda()\nprint('CUDA is not available')\n"
    assert "CUDA is not available" in convert_source(text, "a.py").text


@pytest.mark.parametrize(
    "test",
    [
        "import pytest\nwith pytest.raises(RuntimeError, match='CUDA is not'):\n    main()\n",
        "class T:\n    def test(self):\n        self.assertRaisesRegex(RuntimeError, 'CUDA is .*available', main)\n",
        "try:\n    main()\nexcept RuntimeError as error:\n    ok = 'CUDA is not available' in str(error)\n",
    ],
)
def test_a_message_that_the_project_compares_stays(tmp_path: Path, test: str) -> None:
    (tmp_path / "train.py").write_text(MESSAGE)
    (tmp_path / "test_train.py").write_text(test)
    (found,) = (each for each in convert(tmp_path, Request(), processes=1) if each.name == "train.py")
    assert b"raise RuntimeError('CUDA is not available')" in found.after
    assert [each.severity for each in found.findings if each.code == "IM134"] == [Severity.REVIEW]
