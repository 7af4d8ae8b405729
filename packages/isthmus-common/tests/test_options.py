"""Tables of options, and what options start."""

from __future__ import annotations

import pytest

from isthmus_common import options
from isthmus_common.options import InvalidOption, Option, Table

called: list[str] = []


def begin() -> None:
    called.append("begin")


def end() -> None:
    called.append("end")


ROWS = (
    Option("guest", "switch", False, "tests", "starts", start=f"{__name__}:begin", moment="job"),
    Option("guest_too", "text", "", "tests", "starts the same", start=f"{__name__}:begin", moment="job"),
    Option("guest_early", "text", "", "tests", "starts", start=f"{__name__}:end", moment="python"),
    Option("guest_number", "integer", 3, "tests", "a number", least=0, most=9),
)


@pytest.fixture
def table(monkeypatch):
    found = Table(ROWS)
    called.clear()
    monkeypatch.setattr(options, "tables", lambda: (found,))
    return found


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"ISTHMUS_GUEST": "1"}, ["begin"]),
        ({"ISTHMUS_GUEST": "0"}, []),
        ({"ISTHMUS_GUEST": "1", "ISTHMUS_GUEST_TOO": "x"}, ["begin"]),
        ({"ISTHMUS_GUEST_EARLY": "x"}, []),
        ({"ISTHMUS_GUEST_NUMBER": "4"}, []),
    ],
)
def test_options_that_are_set_start_once_what_they_name(table, environment, expected):
    options.start("job", environment=environment)
    assert called == expected


def test_each_at_its_moment(table):
    options.start("python", environment={"ISTHMUS_GUEST": "1", "ISTHMUS_GUEST_EARLY": "x"})
    assert called == ["end"]


def test_an_invalid_option_ends_the_process_before_anything_starts(table):
    with pytest.raises(
        InvalidOption, match=r"^isthmus: ISTHMUS_GUEST_NUMBER=12: not a whole number from 0 to 9$"
    ):
        options.start("job", environment={"ISTHMUS_GUEST": "1", "ISTHMUS_GUEST_NUMBER": "12"})
    assert called == []


def test_no_table_is_read_without_another_variable(monkeypatch):
    monkeypatch.setattr(options, "tables", lambda: pytest.fail("read"))
    options.start("import torch", frozenset({"ISTHMUS_DRIVER"}), {"ISTHMUS_DRIVER": "host", "PATH": "/bin"})


def test_the_tables_of_the_packages_have_no_option_in_common():
    names = [option.name for table in options.tables() for option in table.options]
    assert len(names) == len(set(names)) > 50
    for table in options.tables():
        for option in table.options:
            assert bool(option.start) == bool(option.moment)
            assert not option.run or option.start, option.name
            assert not option.needs or option.needs in names, option.name
            assert not (option.needs or option.prepare) or option.flag is not None, option.name
