"""Warnings raised below a proxy name the caller's line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import pytest
import torch

from isthmus import shim
from isthmus_common.patches import Scope

MESSAGE = "To copy construct from a tensor"


@pytest.fixture
def always() -> Iterator[None]:
    """Warnings of C++ that come once in a process come always."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.fixture(autouse=True)
def _no_registry() -> None:
    globals().pop("__warningregistry__", None)


def here() -> int:
    return sys._getframe(1).f_lineno


def test_each_line_of_the_caller_warns_once(cuda: Scope) -> None:
    source = torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            torch.tensor(source, device="cuda")
            torch.tensor(source, device="cuda")
            last = here() - 1
    found = [warning for warning in caught if MESSAGE in str(warning.message)]
    assert [(warning.filename, warning.lineno) for warning in found] == [
        (__file__, last - 1),
        (__file__, last),
    ]


def test_other_proxies(cuda: Scope) -> None:
    x = torch.ones(2, device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x.new_tensor(x, device="cuda")
        torch.ones(2).pin_memory("cuda")
        torch.cuda.amp.GradScaler()
        first = here() - 3
    places = [(warning.filename, warning.lineno) for warning in caught]
    assert (__file__, first) in places and all(file == __file__ for file, _ in places)


@pytest.mark.parametrize(
    "program",
    [
        "torch.cuda.FloatTensor([1.0])",
        "torch.autocast('cuda', dtype=torch.float64)",
        "torch.cuda.amp.custom_fwd(lambda: 0)",
        "torch.add(x, x, out=torch.empty(3, device='cuda'))",
        pytest.param(
            "torch.ones(1, device='cuda').std()", marks=pytest.mark.host("other chips' kernels do not warn")
        ),
        "torch.tensor(x, device='cuda')",
    ],
)
def test_the_place_is_that_of_the_program(cuda: Scope, always: None, program: str) -> None:
    names = {"torch": torch, "x": torch.ones(2, device="cuda"), "__name__": "a_program"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(f"\n\n{program}\n", "a_program.py", "exec"), names)
    assert {(warning.filename, warning.lineno) for warning in caught} == {("a_program.py", 3)}


def test_filters_are_those_of_the_caller(cuda: Scope) -> None:
    source = torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__)
        torch.tensor(source, device="cuda")
        assert not caught
        warnings.filterwarnings("error", message=MESSAGE)
        with pytest.raises(UserWarning, match=MESSAGE):
            torch.tensor(source, device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        torch.tensor(source, device="cuda")
        assert not caught


@pytest.mark.parametrize(("action", "count"), [("once", 1), ("module", 1), ("default", 2), ("always", 4)])
def test_actions_count_the_callers_lines(cuda: Scope, action: str, count: int) -> None:
    source = torch.ones(2)
    getattr(warnings, "onceregistry", {}).clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)  # type: ignore[arg-type]
        for _ in range(2):
            torch.tensor(source, device="cuda")
            torch.tensor(source, device="cuda")
    assert len([warning for warning in caught if MESSAGE in str(warning.message)]) == count


def test_warnings_are_as_before_after_the_scope() -> None:
    before, show = list(warnings.filters), warnings._showwarnmsg  # type: ignore[attr-defined]
    with shim.enter():
        assert warnings._showwarnmsg is not show  # type: ignore[attr-defined]
    assert list(warnings.filters) == before and warnings._showwarnmsg is show  # type: ignore[attr-defined]
