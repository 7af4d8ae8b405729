"""isthmus migrate analyse: over processes, over folders, from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_migrate.analyse.engine import analyse
from isthmus_migrate.flow import study


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    (root / "train.py").write_text("import torch\nimport package.model\ntorch.cuda.synchronize()\n")
    (root / "package" / "model.py").write_text("import bmtrain\n")
    (root / "broken.py").write_text("def f(:\n")
    (root / "run.sh").write_text("nvidia-smi\n")
    (root / "requirements.txt").write_text("flash-attn\n")
    for number in range(80):
        (root / "package" / f"m{number}.py").write_text("import torch\ntorch.cuda.empty_cache()\n")
    return root


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["migrate", "analyse", "--no-probe", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_several_processes_find_the_same_as_one(project: Path):
    one, two = analyse(project, processes=1, probe=False), analyse(project, processes=2, probe=False)
    assert one == two
    assert one.files == 85
    assert len({finding.path for finding in one.findings}) == 85


def test_a_large_tree_is_split_among_processes(project: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(study, "_MANY", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(study, "ProcessPoolExecutor", lambda count, *_, **__: asked.append(count) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analyse(project, probe=False)
    assert asked == [2]


def test_progress_counts_python_files_twice(project: Path):
    seen: list[tuple[int, int]] = []
    analyse(project, probe=False, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {83 + 85}
    assert seen[-1] == (83 + 85, 83 + 85)


def test_the_command(project: Path):
    code, out, _ = run(project)
    assert code == 1
    assert "broken.py:1:1: IM001 manual" in out
    assert "package/model.py:1:1: IM301 manual: bmtrain" in out
    assert "requirements.txt:1:1: IM302 review: flash-attn" in out
    assert "run.sh:1:1: IM321 review: nvidia-smi" in out
    assert "train.py:3:1: IM112 automatic: torch.cuda.synchronize" in out
    assert out.splitlines()[-1].startswith("85 files, 167 lines: 81 to change, 4 left (")


def test_one_file_and_its_exit_code(project: Path):
    assert run(project / "train.py")[0] == 0
    assert run(project / "train.py", "--fail-on", "automatic")[0] == 1
    assert run(project / "broken.py", "--ignore", "IM0,IM8")[0] == 0


@pytest.mark.parametrize("format", ["json", "sarif", "csv", "html"])
def test_formats_to_a_file(project: Path, tmp_path: Path, format: str):
    code, out, _ = run(project, "--format", format, "-o", tmp_path / "out", "--csv", tmp_path / "reports")
    assert code == 1
    assert out.startswith("85 files, 167 lines: ")
    assert "bmtrain" in (tmp_path / "out").read_text()
    assert (tmp_path / "reports" / "cuda_op_list.csv").exists()


def test_json_to_the_standard_output(project: Path):
    assert json.loads(run(project, "--format", "json")[1])["files"] == 85


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["no-such-folder"], 2, "isthmus: no-such-folder: no such file or folder\n"),
        ([".", "--target", "tpu"], 2, "isthmus: --target tpu: choose from chip, npu, xpu, cuda\n"),
        (["conftest.py", "-o", "no/such/folder/x"], 1, "isthmus: no/such/folder"),
    ],
)
def test_errors_are_one_line(arguments: list[str], code: int, said: str):
    found, _, stderr = run(*arguments)
    assert found == code
    assert stderr.startswith(said)
    assert stderr.count("\n") == 1


def test_an_empty_folder(tmp_path: Path):
    assert run(tmp_path) == (0, "0 files, 0 lines: 0 to change, 0 left, 0 not applicable\n", "")


def test_the_analysis_does_not_import_torch(project: Path):
    code = (
        "import sys; from isthmus_migrate.analyse.engine import analyse; from pathlib import Path; "
        f"analyse(Path({str(project)!r}), probe=False); print(sorted({{'torch'}} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_method_cuda_of_another_file_is_seen(project: Path):
    (project / "batch.py").write_text("class Batch:\n    def cuda(self): pass\n")
    (project / "loop.py").write_text(
        "import torch\nfrom batch import Batch\nbatch.cuda()\nBatch().cuda()\ntorch.ones(2).cuda()\n"
    )
    found = [each for each in analyse(project, processes=2, probe=False).findings if each.path == "loop.py"]
    ends = [each.severity.value for each in found if each.code == "IM101"]
    assert ends == ["review", "none", "automatic"]


def test_advice_and_what_needs_no_change_are_listed_if_asked(project: Path):
    (project / "train.py").write_text(
        "import torch\nx = torch.zeros(2, dtype=torch.float64)\ntorch.backends.cudnn.benchmark = True\n"
    )
    assert ": IM" not in run(project / "train.py")[1]
    assert "train.py:2:26: IM802 advice" in run(project / "train.py", "--advice")[1]
    assert "train.py:3:1: IM122 none" in run(project / "train.py", "--all")[1]


def test_several_paths_are_one_project(project: Path):
    code, out, _ = run(project / "run.sh", project / "package")
    assert (code, "run.sh:1:1: IM321" in out, "package/model.py:1:1: IM301" in out) == (1, True, True)
