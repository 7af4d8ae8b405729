"""Messages about idioms of public projects: reasons and remedies that are true of their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.convert.project import Request, convert
from isthmus_migrate.rules.requirements import settle_findings
from isthmus_migrate.source.findings import LEFT, Finding, Severity


def left(text: str, code: str, torch: tuple[int, ...] = ()) -> list[Finding]:
    found = convert_source(f"import torch\n{text}", "a.py", torch=torch).findings
    return [each for each in found if each.code == code and each.severity in LEFT]


def test_a_default_in_a_file_without_pytorch_is_left_to_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "opts.py").write_text(
        'def add(parser):\n    parser.add_argument("--backend", default="nccl")\n'
    )
    (tmp_path / "main.py").write_text(
        "import argparse\nimport torch\nfrom opts import add\nparser = argparse.ArgumentParser()\nadd(parser)\n"
        "args = parser.parse_args()\ntorch.distributed.init_process_group(args.backend)\n"
    )
    findings = [each for result in convert(tmp_path, Request()) for each in result.findings]
    (found,) = (each for each in findings if each.path == "opts.py" and each.code == "IM201")
    assert found.advice == (
        "write None here, and torch.distributed.get_default_backend_for_device(DEVICE) "
        "for None where PyTorch takes it"
    )


@pytest.mark.parametrize("say", ["logger.info(s)", "raise RuntimeError(s)"])
def test_a_message_in_a_variable_is_a_message(say: str) -> None:
    text = f"s = git()\nif torch.cuda.is_available():\n    s += f'CUDA:{{i}} ({{name}})'\n{say}\n"
    assert [each.line for each in left(text, "IM134")] == [4]
    assert not left(text.replace(say, "run(s)"), "IM134")


def test_a_message_that_names_a_function_is_not_code() -> None:
    assert not left("logger.warning('torch.cuda._annotate is not available. ')\n", "IM133")
    assert left("text = 'torch.cuda.synchronize()'\n", "IM133")


def test_what_a_mock_replaces_is_named_for_the_version() -> None:
    text = "from unittest import mock\n@mock.patch('torch.cuda.device_count', return_value=2)\ndef test(m): ...\n"
    assert "replace torch.accelerator.device_count and its" in left(text, "IM199")[0].advice
    assert "replace its DEVICE too" in left(text, "IM199", torch=(2, 1))[0].advice


@pytest.mark.parametrize(
    ("required", "needed", "said"),
    [
        ("torch>=2.1,<2.3", "2.9", "require PyTorch 2.9 or later, or give the older one by --torch"),
        ("torch>=2.1,<2.3", "2.1", ""),
        ("torch==1.11.0", "", ""),
    ],
)
def test_a_requirement_is_judged_by_what_the_conversion_needs(required: str, needed: str, said: str) -> None:
    found = Finding("IM313", Severity.REVIEW, "setup.py", 1, 1, required, "", "")
    assert [each.advice for each in settle_findings([found], needed)] == ([said] if said else [])


@pytest.mark.parametrize(
    ("value", "said"), [("-1", "other accelerators stay visible"), ("1", "elsewhere index 0")]
)
def test_hidden_devices_are_told_from_chosen_ones(value: str, said: str) -> None:
    (found,) = left(f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '{value}'\n", "IM129")
    assert found.advice.startswith(said)
