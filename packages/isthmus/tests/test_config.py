"""Options: typed, documented, checked, and complete."""

import os
import re
import subprocess
import sys

import pytest

from isthmus import config, options
from isthmus_common.options import tables
from tools.repository import ROOT


@pytest.fixture(autouse=True)
def no_options(monkeypatch):
    for name in [name for name in os.environ if name.startswith(options.PREFIX)]:
        monkeypatch.delenv(name)


def test_defaults():
    assert (options.text("driver"), options.switch("strict"), options.integer("host_devices")) == (
        "",
        False,
        None,
    )
    assert options.switch("host_delegate")


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
    declared = next(option for option in options.OPTIONS if option.name == field)
    assert options.parse(declared, value) == expected
    option = next(option for option in config.options() if option.variable == variable)
    assert option.is_set and option.value == value and option.problem == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ISTHMUS_STRICT", "yes"),
        ("ISTHMUS_HOST_STRICT", "2"),
        ("ISTHMUS_HOST_ASYNC", "on"),
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
    assert config.unknown_variables() == ["ISTHMUS_HOST_DEVICE"]


def test_every_option_documents_its_meaning_and_reader():
    for option in config.options():
        assert option.meaning and option.reader and not option.is_set


SOURCES = [
    path
    for path in (
        *ROOT.glob("packages/*/csrc/**/*.[ch]*"),
        *ROOT.glob("packages/*/src/**/*.py"),
        *ROOT.glob("packages/*/setup.py"),
    )
    if path.name != "options.py"
]
# Macros of the compiler's command lines and of setup.py.
MACROS = {"ISTHMUS_BUILD", "ISTHMUS_LOADER_LIBRARY", "ISTHMUS_TORCH_VERSION"}
# Read by the variable's name: before the package is imported (setup.py), of another process, or without isthmus.
BY_NAME = {
    "build_debug",
    "kernels",
    "megatron",
    "health",
    "swap",
    "debug_listen",
    "migrate_trace",
    "torch",
    "triton_debug",
    "triton_seed",
    "verify",
}


def test_every_option_is_read_and_every_variable_is_an_option():
    texts = [path.read_text() for path in SOURCES]
    named = {name for text in texts for name in re.findall(r'"(ISTHMUS_[A-Z_]+)"', text)}
    declared = [option for table in tables() for option in table.options]
    assert named - MACROS <= {option.variable for option in declared}
    python = r'(?:options|TABLE|_table\("[a-z]+"\))\.(?:switch|integer|text|variable)\("([a-z_]+)"'
    read = {name for text in texts for name in re.findall(python, text)}
    constants = {name for text in texts for name in re.findall(r"options::k(\w+)", text)}
    snake = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in constants}
    assert read | snake | BY_NAME == {option.name for option in declared}


def test_variables_are_read_in_one_place():
    direct = re.compile(r'(?:environ(?:ment)?\.get|getenv)\("ISTHMUS_')
    of_builds = ("setup.py", "pytorch.py")
    assert not [path for path in SOURCES if path.name not in of_builds and direct.search(path.read_text())]


@pytest.mark.parametrize(
    ("read", "name", "value", "message"),
    [
        (options.switch, "strict", "yes", "ISTHMUS_STRICT=yes: not a switch; set it to 0 or 1"),
        (options.integer, "host_devices", "65", "ISTHMUS_HOST_DEVICES=65: not a whole number from 0 to 64"),
        (
            options.text,
            "host_memory",
            "1KiB",
            "ISTHMUS_HOST_MEMORY=1KiB: not a size; set it to bytes or a number with KiB, MiB, GiB or TiB, "
            "from 2MiB to 64TiB, for example 8GiB",
        ),
        (options.text, "host_rng", "2", "ISTHMUS_HOST_RNG=2: unknown value; expected mt19937 or philox"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(read, name, value, message):
    environment = {options.variable(name): value}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(name, environment)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        options.check(environment)


@pytest.mark.parametrize(
    ("read", "name", "environment", "expected"),
    [
        (options.switch, "host_delegate", {}, True),
        (options.switch, "strict", {"ISTHMUS_STRICT": ""}, False),
        (options.integer, "host_devices", {}, None),
        (options.integer, "flight_recorder", {"ISTHMUS_FLIGHT_RECORDER": "7"}, 7),
        (options.text, "allocator", {}, "planned"),
        (options.text, "host_memory", {"ISTHMUS_HOST_MEMORY": "1.5GiB"}, "1.5GiB"),
    ],
)
def test_readers_return_typed_values(read, name, environment, expected):
    assert read(name, environment) == expected


def test_the_table_imports_no_pydantic():
    code = "import sys; from isthmus import options; assert not {'pydantic', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
