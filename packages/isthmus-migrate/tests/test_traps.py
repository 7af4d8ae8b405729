"""Scripts with known answers, written from PyTorch's documentation without a look at the shim or the converter.

Each trap has its lines of output in comments, ``# answer: LINE``, as a machine with CUDA prints them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity
from tests.helpers import children
from tests.helpers.command import isthmus, run

TRAPS = sorted((Path(__file__).parent / "traps").glob("*.py"))
ANSWER = re.compile(r"^# answer: (.*)$", re.MULTILINE)


@pytest.mark.full
@pytest.mark.parametrize("trap", TRAPS, ids=lambda path: path.stem)
def test_isthmus_run_prints_the_answers(trap: Path) -> None:
    done = run("--quiet", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda path: path.stem)
def test_tracing_changes_no_answer(trap: Path, tmp_path: Path) -> None:
    done = isthmus("migrate", "trace", "-o", tmp_path / "evidence.json", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())


# Converted, these have a place that is listed as left, and do not print all of their answers without it.
LEFT = frozenset(
    "aliases_of_torch_cuda argparse_and_environment_default child_interpreter_from_string "
    "cuda_module_by_getattr_and_importlib dataclass_enum_and_config_text default_tensor_type "
    "cuda_disabled_by_assignment device_argument_parsing device_string_surgery "
    "dtype_by_capability_and_memory_counters "
    "exec_and_eval_templates getattr_by_name "
    "kernel_table_by_device_type map_location_in_all_forms match_on_device_class metaclass_places_modules "
    "monkeypatched_tensor_cuda names_that_shadow_torch plugin_registry_of_dotted_names "
    "probes_by_try singledispatch_mover "
    "star_import_from_torch_cuda tolerance_by_device_type torchscript_device_inside".split()
)
_RUN = "import runpy, sys; sys.argv = [{path!r}]; runpy.run_path({path!r}, run_name='__main__')"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda path: path.stem)
def test_converted_it_prints_the_answers_or_lists_what_is_left(trap: Path, tmp_path: Path) -> None:
    text = trap.read_text()
    result = convert_source(text, trap.name)
    path = tmp_path / trap.name
    path.write_text(result.text)
    done = children.run(_RUN.format(path=str(path)))
    is_right = done.returncode == 0 and done.stdout.splitlines() == ANSWER.findall(text)
    left = [each for each in result.findings if each.severity in (Severity.REVIEW, Severity.MANUAL)]
    assert is_right or left, f"silently wrong: {done.stdout}{done.stderr}"
    assert is_right == (trap.stem not in LEFT)
