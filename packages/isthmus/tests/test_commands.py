"""The ``isthmus`` command: env, doctor, ops, and error messages."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import isthmus
from isthmus.doctor import chip
from isthmus_common.application import app
from isthmus_common.commands import COMMANDS
from tests.helpers import children
from tests.helpers.children import start_module


def command(*arguments, **environment):
    removed = dict.fromkeys(name for name in os.environ if name.startswith("ISTHMUS_"))
    return children.command(*arguments, **{**removed, "ISTHMUS_HOST_MEMORY": "1GiB", **environment})


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_version_and_help():
    assert invoke("--version").output == f"isthmus {isthmus.__version__}\n"
    listing = invoke("--help").output
    assert all(name in listing for name in ("run", "env", "doctor", "ops"))
    assert "--nproc" in invoke("run", "--help").output


def test_help_names_every_command_under_its_group():
    listing = invoke("--help").output
    for heading, group in COMMANDS.items():
        assert f"{heading}:" in listing
        for name, (_, text) in group.items():
            assert text.endswith(".") and get_command(app).get_command(None, name).name == name


def test_help_imports_no_command():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom isthmus_common.application import app\n"
        "assert 'Judge a chip' in CliRunner().invoke(app, ['--help']).output\n"
        "print([name for name in sys.modules if name.startswith(('torch', 'numpy', 'pydantic'))"
        " or name.startswith('isthmus.') and name.endswith('.cli') and name != 'isthmus_common.shell'])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_a_mistyped_command_gets_a_suggestion_without_importing_commands():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom isthmus_common.application import app\n"
        "for name in ('migrat', 'profle', 'doctr', 'nothing-like-it'):\n"
        "    print(CliRunner().invoke(app, [name]).output.splitlines()[-1])\n"
        "print([name for name in sys.modules if name.endswith('.cli') and name != 'isthmus_common.shell'])"
    )
    migrate, profile, doctor, nothing, imported = subprocess.check_output(
        [sys.executable, "-c", code], text=True
    ).splitlines()
    assert "No such command 'migrat'. Did you mean 'migrate'?" in migrate
    assert "Did you mean 'profile'?" in profile and "Did you mean 'doctor'?" in doctor
    assert "No such command 'nothing-like-it'." in nothing and "Did you mean" not in nothing
    assert imported == "[]"


def test_env_lists_and_checks():
    done = command("env", ISTHMUS_STRICT="1")
    rows = {line.split("\t")[0]: line.split("\t") for line in done.stdout.splitlines() if "\t" in line}
    assert done.returncode == 0 and rows["ISTHMUS_STRICT"][1] == "1 *" and rows["ISTHMUS_STRICT"][2] == "0"
    assert rows["ISTHMUS_DRIVER"][1] == ""
    done = command("env", "--json", ISTHMUS_STRICT="perhaps", ISTHMUS_STRIKT="1")
    assert done.returncode == 1
    assert {entry["variable"]: entry["value"] for entry in json.loads(done.stdout)}[
        "ISTHMUS_STRICT"
    ] == "perhaps"
    assert "isthmus: ISTHMUS_STRICT=perhaps: not a switch; set it to 0 or 1\n" in done.stderr
    assert "isthmus: ISTHMUS_STRIKT: no such option" in done.stderr


def test_env_imports_no_torch():
    code = "import sys\nimport isthmus_common.application, isthmus.config\nprint('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_doctor_finds_a_sound_installation():
    done = command("doctor")
    assert done.returncode == 0, done.stdout
    subjects = [line.split()[1] for line in done.stdout.splitlines()]
    assert {"python", "torch", "drivers", "chip", "accelerator", "device", "computation", "routes"} <= set(
        subjects
    )
    assert "FAIL" not in done.stdout and "bit for bit" in done.stdout
    assert "of 1.0 GiB free" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ISTHMUS_DRIVER": "none"}, "disabled by ISTHMUS_DRIVER=none"),
        ({"ISTHMUS_DRIVER": "/no/such/driver.so"}, "/no/such/driver.so"),
        (
            {"ISTHMUS_HOST_MEMORY": "lots"},
            "ISTHMUS_HOST_MEMORY=lots: not a size; set it to bytes or a number",
        ),
        ({"ISTHMUS_HOST_DEVICES": "0"}, "none available"),
        ({"ISTHMUS_HOST_DEVICE": "2"}, "ISTHMUS_HOST_DEVICE is set, but is not an option"),
    ],
)
def test_doctor_reports_problems(environment, expected):
    done = command("doctor", **environment)
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 1 and any(expected in line for line in failures), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_does_not_trust_a_wrong_result(monkeypatch):
    monkeypatch.setattr(chip, "_product", lambda first, second: (first + first.is_cpu, second))
    records = [record["finding"] for record in chip.torch_records() if "finding" in record]
    (finding,) = [finding for finding in records if finding.subject == "computation"]
    assert finding.state == "fail" and "results of this chip are wrong" in finding.remedy


def test_doctor_says_what_a_chip_without_a_kernel_needs(monkeypatch):
    def refuse(first, second):
        if first.is_cpu:
            return first, second
        raise NotImplementedError("aten::mm has no route on driver pico")

    monkeypatch.setattr(chip, "_product", refuse)
    records = [record["finding"] for record in chip.torch_records() if "finding" in record]
    (finding,) = [finding for finding in records if finding.subject == "computation"]
    assert finding.state == "fail" and "`fallback = true`" in finding.remedy


def test_a_failing_check_does_not_hide_the_others(monkeypatch):
    def broken(*_):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(torch.accelerator, "get_memory_info", broken)
    records = [record["finding"] for record in chip.torch_records() if "finding" in record]
    findings = {finding.subject: finding for finding in records}
    assert findings["devices"].text == "RuntimeError: first line" and findings["routes"].state == "ok"


def test_ops():
    lines = invoke("ops", "add.Tensor").output.splitlines()
    assert lines[0] == "operator\troute\treason" and lines[1].startswith("aten::add.Tensor\t")
    assert lines[-1] == "1 operators: 1 delegate"
    assert len(invoke("ops", "add").output.splitlines()) >= 4
    found = json.loads(invoke("ops", "*", "--route", "none", "--json").output)
    assert found and all(entry["route"] == "none" and entry["reason"] for entry in found.values())
    everything = json.loads(invoke("ops", "--json").output)
    assert len(everything) == len(torch.chip.routes()) > 2500


def test_ops_refuses_an_unknown_route():
    done = invoke("ops", "--route", "magic")
    assert done.exit_code == 2 and done.stderr.startswith("isthmus: --route magic: no such route; there are ")


def test_ops_without_a_chip():
    child = start_module("isthmus", "ops", ISTHMUS_DRIVER="none")
    _, error = child.communicate()
    assert child.returncode == 1 and error.startswith("isthmus: the chip is not registered: ")


def test_run_explain():
    child = start_module("isthmus", "run", "--explain")
    text, _ = child.communicate()
    assert child.returncode == 0 and "torch.cuda.is_available" in text


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("words", ["--help", "env", "ops --json", "data inspect {}", "memory --help"])
def test_output_whose_reader_is_gone_ends_quietly(words, merged, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    child = start_module("isthmus", *words.format(tmp_path / "rows.jsonl").split(), merged=merged)
    child.stdout.close()
    assert child.wait(60) == 128 + signal.SIGPIPE
    assert merged or child.stderr.read() == ""


def test_a_reader_that_leaves_early_gets_its_lines_and_the_file_is_complete(tmp_path):
    """A fresh interpreter would report at its end what it cannot flush."""
    rows = [{"text": f"line {number}"} for number in range(20_000)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    words = ["data", "convert", tmp_path / "rows.json", "--workers", "1", "-o", tmp_path / "out.txt"]
    child = start_module("isthmus", *map(str, words), merged=True, fresh=True)
    child.stdout.close()
    assert child.wait(60) == 128 + signal.SIGPIPE
    assert (tmp_path / "out.txt").read_text().count("\n") == 20_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "rows.json"]
    child = start_module("isthmus", "data", "inspect", str(tmp_path / "rows.json"), "-n", "20000", fresh=True)
    assert child.stdout.readline().startswith("file\t")
    child.stdout.close()
    assert child.wait(60) == 128 + signal.SIGPIPE
    assert child.stderr.read() == ""
