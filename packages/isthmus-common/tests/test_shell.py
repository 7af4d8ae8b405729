"""The ``isthmus`` command: commands of installed and absent packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from isthmus_common import application, commands, shell


def test_a_command_whose_package_is_absent_names_it(monkeypatch, capsys):
    present = {name: entry for name, entry in commands.installed_commands().items() if name != "migrate"}
    monkeypatch.setattr(commands, "installed_commands", lambda: present)
    for arguments in (["migrate"], ["migrate", "analyse", "."], ["migrate", "--help"]):
        assert CliRunner().invoke(application.app, arguments).exit_code == 2
    application.app(["--help"], standalone_mode=False)
    assert "(needs isthmus-migrate)" in " ".join(capsys.readouterr().out.split())


def test_what_an_absent_package_says(monkeypatch, capsys):
    monkeypatch.setattr(commands, "installed_commands", dict)
    monkeypatch.setattr("sys.argv", ["isthmus", "cluster", "run", "x.py"])
    with pytest.raises(SystemExit) as ended:
        shell.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "isthmus cluster needs isthmus-cluster: pip install isthmus-cluster\n"


@pytest.mark.parametrize(
    ("module", "status", "said"),
    [
        ("torch", 1, "isthmus guest: PyTorch is not installed; run `pip install 'torch>=2.13,<2.16'`\n"),
        ("isthmus.chip", 2, "isthmus guest: this needs isthmus: pip install isthmus\n"),
        ("isthmus_formats", 2, "isthmus guest: this needs isthmus-formats: pip install isthmus-formats\n"),
    ],
)
def test_a_module_that_a_command_lacks(monkeypatch, capsys, module, status, said):
    def guest() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(commands, "installed_commands", lambda: {"guest": Guest(guest)})
    monkeypatch.setattr("sys.argv", ["isthmus", "guest"])
    with pytest.raises(SystemExit) as ended:
        shell.main()
    assert (ended.value.code, capsys.readouterr().err) == (status, said)


def test_a_command_of_another_package_is_listed_and_runs(monkeypatch, capsys):
    def guest(name: str) -> None:
        print(f"hello {name}")

    monkeypatch.setattr(commands, "installed_commands", lambda: {"guest": Guest(guest)})
    application.app(["--help"], standalone_mode=False)
    assert "Of other packages:" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["isthmus", "guest", "world"])
    with pytest.raises(SystemExit) as ended:
        shell.main()
    assert (ended.value.code, capsys.readouterr().out) == (0, "hello world\n")


class Guest:
    """The entry point of a command that exists in this process only, and its module."""

    dist = None

    def __init__(self, command: Callable[..., None]) -> None:
        self._command = command

    def load(self) -> Guest:
        return self

    def add_to(self, app: typer.Typer) -> None:
        app.command("guest")(self._command)


def test_every_command_is_of_the_package_that_the_help_names():
    for name, package, text in commands.known_commands():
        entry = commands.installed_commands()[name]
        assert isinstance(entry, EntryPoint) and entry.dist is not None
        assert entry.dist.name == package and text.endswith(".")
    assert not commands.other_commands()
