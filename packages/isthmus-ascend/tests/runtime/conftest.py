"""The state of libascendcl.so in the processes of these tests."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def accepts_what_cards_refuse() -> None:
    """Load the libraries by :func:`opapi.library` first: a process reads once whether it is strict."""
    from tests.runtime import opapi

    opapi.library()
