"""The shim's scope for the tests of its parts."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from isthmus import shim
from isthmus_common.patches import Scope

_open: list[tuple[ExitStack, Scope]] = []


def _close() -> None:
    while _open:
        _open.pop()[0].close()


@pytest.fixture
def cuda() -> Scope:
    """The scope, which stays open for the next test that asks for it: to leave it takes a fifth of a second."""
    if not _open:
        stack = ExitStack()
        _open.append((stack, stack.enter_context(shim.enter())))
    return _open[0][1]


@pytest.fixture(autouse=True)
def _outside(request: pytest.FixtureRequest) -> None:
    """Close the scope before a test that does not ask for it."""
    if "cuda" not in request.fixturenames:
        _close()


@pytest.fixture(autouse=True, scope="module")
def _closed_at_the_end() -> Iterator[None]:
    yield
    _close()
