"""Notebooks: the example by a real kernel, a kernel under `isthmus run`, and the extension itself."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import isthmus
from isthmus_common import patches
from tests.helpers.command import isthmus as command
from tools.repository import ROOT

EXAMPLE = ROOT / "examples" / "notebook.ipynb"


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what the cells printed; a cell that failed has an output without a stream."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["text"] for output in outputs if output["name"] == "stdout"]


def test_the_example_prints_what_it_shows() -> None:
    shown = nbformat.read(EXAMPLE, as_version=4)
    ran = nbformat.read(EXAMPLE, as_version=4)
    NotebookClient(ran, timeout=120, kernel_name="python3").execute()
    assert texts(ran) == texts(shown) == ["True True cuda:0\n", "True\n", "False chip:0\n"]


CELLS = (
    "import torch; x = torch.ones(2).cuda(); print(x.is_cuda, x.device.type, str(x.device))",
    "print('cuda' if x.device.type == 'cuda' else 'other', f'{x.device}', [torch.device('cuda', 0)])",
    "def on_cuda(tensor): return tensor.is_cuda\nprint(on_cuda(x), eval('x.is_cuda'), repr(x))",
    "%time print(torch.cuda.is_available(), x.type())",
    "print(await __import__('asyncio').sleep(0, x.device))",
)
SHOWN = [
    "True cuda cuda:0\n",
    "cuda cuda:0 [device(type='cuda', index=0)]\n",
    "True True tensor([1., 1.], device='cuda:0')\n",
    "True torch.cuda.FloatTensor\n",
    "cuda:0\n",
]


@pytest.mark.full
def test_kernels_under_isthmus_run_need_no_extension(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "import json, nbformat, nbclient\n"
        f"cells = [nbformat.v4.new_code_cell(cell) for cell in {CELLS!r}]\n"
        "notebook = nbformat.v4.new_notebook(cells=cells)\n"
        "nbclient.NotebookClient(notebook, kernel_name='python3').execute()\n"
        "print(json.dumps([cell.outputs[0]['text'] for cell in notebook.cells]))\n"
    )
    done = command("run", "--quiet", str(script))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [text.partition("CPU times")[0] for text in shown] == SHOWN


def test_loading_twice_and_unloading(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(1, device="chip")
    for _ in range(2):
        isthmus.load_ipython_extension(None)
        assert x.is_cuda and torch.cuda.is_available()
    assert capsys.readouterr().err.startswith("isthmus: cuda -> chip (")
    isthmus.unload_ipython_extension(None)
    assert not x.is_cuda and not patches.active("shim")
    isthmus.unload_ipython_extension(None)


def test_a_kernel_without_a_device_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
    isthmus.load_ipython_extension(None)
    written = capsys.readouterr().err
    assert written.startswith("isthmus: ") and written.count("\n") == 1 and not patches.active("shim")
