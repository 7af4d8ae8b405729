"""No test for the CPU is added where a program has made sure of an accelerator."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source

HEAD = "import sys, torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
USES = "with torch.cuda.amp.autocast(enabled=on):\n    model = DDP(model, device_ids=[rank])"


def _body(before: str, indent: str = "    ") -> str:
    return before + "".join(f"{indent}{line}\n" for line in USES.splitlines())


def _has_tests(source: str) -> bool:
    text = convert_source(HEAD + source, "a.py").text
    assert "torch.amp.autocast(DEVICE.type, enabled=on" in text
    assert convert_source(text, "a.py").text == text
    tests = text.count('DEVICE.type != "cpu"')
    assert tests in (0, 2)
    return bool(tests)


@pytest.mark.parametrize(
    "source",
    [
        _body("def f(model, rank, on):\n    assert torch.cuda.is_available()\n"),
        _body("if not torch.cuda.is_available():\n    sys.exit('no GPU')\ndef f(model, rank, on):\n"),
        _body("def f(model, rank, on):\n    if not torch.cuda.is_available():\n        raise SystemExit\n"),
        _body(
            "class T:\n    def __init__(self, model, rank):\n        self.model = model.to(rank)\n"
            "    def step(self, model, rank, on):\n",
            " " * 8,
        ),
        _body("def f(model, rank, on):\n    model = model.eval().to(rank)\n"),
        _body(
            'def f(model, rank, on):\n    device = torch.device("cuda", rank)\n'
            "    torch.distributed.init_process_group(device_id=device)\n"
        ),
        _body("def f(model, rank, on):\n")
        + "def main():\n    assert torch.cuda.is_available()\n    f(None, 0, True)\n"
        + 'if __name__ == "__main__":\n    main()\n',
        _body("def _f(model, rank, on):\n")
        + "def g():\n    if torch.cuda.is_available():\n        _f(None, 0, True)\n",
        _body("class _T:\n    def f(self, model, rank, on):\n", " " * 8)
        + "def g():\n    if torch.cuda.is_available():\n        _T().f(None, 0, True)\n",
    ],
)
def test_no_test_after_one(source: str) -> None:
    assert not _has_tests(source)


@pytest.mark.parametrize(
    "source",
    [
        _body("def f(model, rank, on):\n"),
        _body("def f(model, rank, on):\n    if on:\n        model = model.to(rank)\n"),
        _body("def f(model, rank, on):\n    model.to(0.5)\n"),
        _body(
            'def f(model, rank, on):\n    device = torch.device("cuda", rank) if on else None\n'
            "    torch.distributed.init_process_group(device_id=device)\n"
        ),
        _body("def f(model, rank, on):\n")
        + 'if __name__ == "__main__":\n    assert f\n    if torch.cuda.is_available():\n        f(None, 0, True)\n',
        _body("def f(model, rank, on):\n") + "f(None, 0, True)\nassert torch.cuda.is_available()\n",
        _body("def unused(model, rank, on):\n") + 'if __name__ == "__main__":\n    pass\n',
        _body(
            "class T:\n    def __init__(self, model, rank):\n        self.model = model.to(rank)\n"
            "    @staticmethod\n    def step(model, rank, on):\n",
            " " * 8,
        ),
    ],
)
def test_a_test_without_one(source: str) -> None:
    assert _has_tests(source)


def test_indices_of_ddp_need_no_test_where_the_known_callers_have_one() -> None:
    source = _body("def f(model, rank, on):\n") + "if torch.cuda.is_available():\n    f(None, 0, True)\n"
    text = convert_source(HEAD + source, "a.py").text
    assert "device_ids=[rank])" in text  # on the CPU it raised before too
    assert "enabled=on and" in text or 'DEVICE.type != "cpu"' in text  # another module may call f


OWN = """import torch

{before}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def f(x):
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    torch.cuda.ipc_collect()
    return x.cuda()
"""
VALUE = 'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'


def test_the_project_s_own_constant_is_the_device() -> None:
    text = convert_source(OWN.format(before="LR = 0.1"), "a.py").text
    assert f"\nDEVICE = {VALUE}\n" in text
    assert "ACCELERATOR" not in text
    assert 'if DEVICE.type != "cpu":\n        torch.accelerator.synchronize()\n' in text
    assert 'if DEVICE.type == "cuda":\n        torch.cuda.ipc_collect()\n' in text
    assert convert_source(text, "a.py").text == text


@pytest.mark.parametrize(
    "before", ["x = torch.ones(1).cuda()", "def g(DEVICE):\n    return DEVICE", "from config import DEVICE"]
)
def test_a_constant_that_is_late_or_bound_twice_is_not(before: str) -> None:
    text = convert_source(OWN.format(before=before), "a.py").text
    assert f"\nACCELERATOR = {VALUE}\n" in text
    assert "return x.to(ACCELERATOR)" in text
    assert convert_source(text, "a.py").text == text
