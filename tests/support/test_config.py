"""Options: typed, documented, checked, and complete."""

import os
import re
from pathlib import Path

import pytest

from isthmus import config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_options(monkeypatch):
    for name in [name for name in os.environ if name.startswith(config.PREFIX)]:
        monkeypatch.delenv(name)


def test_defaults():
    settings = config.Settings()
    assert (settings.driver, settings.strict, settings.host_devices, settings.host_delegate) == (
        "",
        False,
        None,
        True,
    )


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("ISTHMUS_STRICT", "1", "strict", True),
        ("ISTHMUS_HOST_DELEGATE", "0", "host_delegate", False),
        ("ISTHMUS_HOST_DEVICES", "8", "host_devices", 8),
        ("ISTHMUS_HOST_DEVICES", "", "host_devices", None),
        ("ISTHMUS_HOST_MEMORY", "1.5GiB", "host_memory", "1.5GiB"),
        ("ISTHMUS_DRIVER", "host", "driver", "host"),
    ],
)
def test_values_are_read_and_typed(monkeypatch, variable, value, field, expected):
    monkeypatch.setenv(variable, value)
    assert getattr(config.Settings(), field) == expected
    option = next(option for option in config.options() if option.variable == variable)
    assert option.is_set and option.value == value and option.problem == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ISTHMUS_STRICT", "yes"),
        ("ISTHMUS_HOST_STRICT", "2"),
        ("ISTHMUS_HOST_DEVICES", "-1"),
        ("ISTHMUS_HOST_DEVICES", "many"),
        ("ISTHMUS_HOST_MEMORY", "8GB"),
    ],
)
def test_wrong_values_are_found(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    problems = {option.variable: option.problem for option in config.options() if option.problem}
    assert list(problems) == [variable] and "\n" not in problems[variable]


def test_misspelled_variables_are_found(monkeypatch):
    monkeypatch.setenv("ISTHMUS_HOST_DEVICE", "2")
    assert config.unknown() == ["ISTHMUS_HOST_DEVICE"]


def test_every_option_says_what_it_means_and_who_reads_it():
    for option in config.options():
        assert option.meaning and option.reader and not option.is_set


def test_the_declared_variables_are_those_that_the_code_reads():
    declared = {option.variable for option in config.options()}
    sources = [*ROOT.glob("csrc/**/*.cpp"), *ROOT.glob("isthmus/**/*.py"), ROOT / "setup.py"]
    macros = {"ISTHMUS_LOADER_LIBRARY"}  # of the compiler's command line
    read = {name for path in sources for name in re.findall(r'"(ISTHMUS_[A-Z_]+)"', path.read_text())}
    assert read - macros == declared
