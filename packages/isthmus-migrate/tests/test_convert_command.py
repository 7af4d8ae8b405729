"""`isthmus migrate convert`: patches for git, files in place, logs, notebooks."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isthmus_common.application import app
from isthmus_migrate.convert import patch, project

SOURCE = "import torch\n\nx = torch.zeros(2).cuda()\ntorch.cuda.empty_cache()\n"
USE = "import torch\nfrom a.names import NAME\nx = torch.zeros(2, device=NAME)\n"
FILES = {
    "plain.py": SOURCE.encode(),
    "windows.py": SOURCE.replace("\n", "\r\n").encode(),
    "mixed.py": SOURCE.replace("\n", "\r\n", 2).encode(),
    "no_newline.py": SOURCE.rstrip("\n").encode(),
    "mark.py": b"\xef\xbb\xbf" + SOURCE.encode(),
    "latin.py": b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + SOURCE.encode(),
    "form_feed.py": SOURCE.replace("\n\n", "\n\x0c\n").encode(),
    "with space.py": SOURCE.encode(),
    'caf\xe9 "quoted".py': SOURCE.encode(),
    "folder/deep.py": SOURCE.encode(),
    "untouched.py": b"print('cuda')\r\nx = 1",
    "broken.py": b"x.cuda(\n",
    "launch.sh": b"python -m torch.distributed.launch --nproc_per_node 2 train.py\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, data in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name == "plain.py" else 0o600)
    return root


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["migrate", "convert", *map(str, arguments)])


def _bytes(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def _git(root: Path, *arguments: object) -> None:
    subprocess.run(["git", "-C", root, *map(str, arguments)], check=True, capture_output=True)


def test_git_applies_and_reverts_the_patch(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "patch"
    result = _run(tree, "-o", file)
    assert result.exit_code == 0, result.output
    assert _bytes(tree) == FILES
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    _git(tree, "init", "-q")
    _git(tree, "apply", "--check", file)
    _git(tree, "apply", file)
    applied = _bytes(tree)
    assert {name for name in FILES if applied[name] != FILES[name]} == set(FILES) - {
        "untouched.py",
        "broken.py",
    }
    _git(tree, "apply", "-R", file)
    assert _bytes(tree) == FILES


def test_writing_in_place_equals_the_patch(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "undo"
    assert _run(tree, "--write", "-o", file).exit_code == 0
    written = _bytes(tree)
    assert b"x = torch.zeros(2).to(DEVICE)\r\n" in written["windows.py"]
    assert written["windows.py"].count(b"\n") == written["windows.py"].count(b"\r\n")
    assert written["mark.py"].startswith(b"\xef\xbb\xbfimport torch\n")
    assert b"caf\xe9" in written["latin.py"]
    assert not written["no_newline.py"].endswith(b"\n")
    assert stat.S_IMODE((tree / "plain.py").stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "windows.py").stat().st_mode) == 0o600
    _git(tree, "init", "-q")
    _git(tree, "apply", "-R", file)
    assert _bytes(tree) == FILES


def test_a_second_run_changes_nothing(tree: Path) -> None:
    _run(tree, "--write")
    once = _bytes(tree)
    result = _run(tree, "--write")
    assert _bytes(tree) == once
    assert "0 files changed, 0 changes, 1 place left (1 manual, 0 to review)\n" in result.stderr


def test_the_log_lists_every_change_and_unconverted_place(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    _run(tree, "--log", file)
    log = json.loads(file.read_text())
    plain = [change for change in log["changes"] if change["path"] == "plain.py"]
    assert [(change["code"], change["line"]) for change in plain] == [("IM101", 3), ("IM113", 4)]
    assert [finding["path"] for finding in log["left"]] == ["broken.py"]
    assert (log["version"], log["torch"]) == (2, "2.9")
    assert {change["end"] for change in log["changes"]} == {"changed"}
    assert "edits" not in log["changes"][0]


def test_the_printed_log_is_grouped_by_rule_and_file(tree: Path) -> None:
    (tree / "folder" / "deep.py").write_text(SOURCE + "y = x.cuda()\nz = y.cuda(other)\n")
    lines = _run(tree / "plain.py", tree / "folder" / "deep.py", tree / "broken.py").stderr.splitlines()
    assert lines == [
        "IM101 tensor-cuda: 3 changes in 2 files",
        "  plain.py:3",
        "  folder/deep.py:3, 5",
        "IM113 memory: 2 changes in 2 files",
        "  plain.py:4",
        "  folder/deep.py:4",
        "IM001 the source does not parse: 1 place left",
        "  broken.py:1: manual: broken.py does not parse: '(' was never closed; it is not analysed; "
        "fix the syntax, then analyse again",
        "IM101 tensor-cuda: 1 place left",
        "  folder/deep.py:6: review: .cuda() moves to `other`, which may be an index, a device or None; "
        "write `.to(device)` by hand",
        "isthmus: 2 files to change, 5 changes, 2 places left (1 manual, 1 to review); "
        "needs PyTorch 2.9 (2.13 on MPS)",
    ]


def test_several_paths_give_one_patch_for_the_folder_in_common(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "patch"
    _run(tree / "folder", tree / "plain.py", tree / "plain.py", "-o", file)
    _git(tree, "init", "-q")
    _git(tree, "apply", file)
    applied = _bytes(tree)
    assert {name for name in FILES if applied[name] != FILES[name]} == {"plain.py", "folder/deep.py"}


def test_modules_under_several_paths_are_one_project(tmp_path: Path) -> None:
    for folder, text in (("a", "NAME = 'cuda'\n"), ("b", USE)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "names.py").write_text(text)
    shown = "(passed to torch.zeros(device=) in b/names.py:3)"
    reason = f"names a CUDA device {shown}, in a file that does not use PyTorch"
    assert f'a/names.py:1: manual: "cuda" {reason}' in _run(tmp_path / "a", tmp_path / "b").stderr
    assert "1 place left (0 manual, 1 to review)" in _run(tmp_path / "a").stderr


@pytest.mark.parametrize(("severity", "code"), [("never", 0), ("manual", 0), ("review", 1), ("automatic", 1)])
def test_the_exit_status_is_that_of_what_is_left(tree: Path, severity: str, code: int) -> None:
    (tree / "plain.py").write_text("import torch\ny = torch.ones(1).cuda(other)\n")
    assert _run(tree / "plain.py", "--fail-on", severity).exit_code == code


def test_a_missing_name_of_pytorch_is_left_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n\nx = torch.zeros(2).cuda()\ntorch.cuda.empty_cache()\n"
        "try:\n    x + x\nexcept torch.cuda.AcceleratorError:\n    pass\n"
    )
    result = _run(file, "--torch", "2.7", "--write")
    assert "but torch.AcceleratorError exists since PyTorch 2.8; convert for a newer PyTorch" in result.stderr
    assert "1 place left (1 manual, 0 to review); needs PyTorch 2.7\n" in result.stderr
    once = file.read_text()
    assert "DEVICE = torch.accelerator.current_accelerator(check_available=True) or" in once
    assert "torch.get_device_module(DEVICE).empty_cache()\n" in once
    assert "0 files changed" in _run(file, "--torch", "2.7", "--write").stderr
    assert file.read_text() == once


def test_one_file_gives_a_patch_on_standard_output(tree: Path) -> None:
    result = _run(tree / "plain.py")
    assert result.stdout.startswith("diff --git a/plain.py b/plain.py\n--- a/plain.py\n+++ b/plain.py\n@@ ")


def test_a_target_pins_the_device(tree: Path) -> None:
    result = _run(tree / "plain.py", "--target", "npu")
    assert '+DEVICE = torch.device("npu")' in result.stdout
    assert "+torch.accelerator.empty_cache()" in result.stdout


@pytest.mark.parametrize("name", ["IM101", "tensor-cuda"])
def test_rules_are_selected(tree: Path, name: str) -> None:
    only = _run(tree / "plain.py", "--select", name).stdout
    rest = _run(tree / "plain.py", "--ignore", name).stdout
    assert "to(DEVICE)" in only and "accelerator.empty_cache" not in only
    assert "to(DEVICE)" not in rest and "accelerator.empty_cache" in rest


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--target", "tpu"], "--target tpu: choose from chip, npu, xpu, cuda"),
        (["--fail-on", "x"], "--fail-on x: choose from automatic, review, manual, never"),
        (["--torch", "new"], "--torch new: not a version of PyTorch; expected one such as 2.6"),
        (["--torch", "1.13"], "--torch 1.13: PyTorch before 2.1 is not supported"),
        (["--evidence", "absent.json"], "--evidence absent.json: No such file or directory"),
        (["--select", "IM9"], "IM9: unknown rule; `isthmus migrate rules` lists all"),
    ],
)
def test_wrong_usage_is_one_line(tree: Path, arguments: list[str], line: str) -> None:
    result = _run(tree, *arguments)
    assert (result.exit_code, result.stderr) == (2, f"isthmus: {line}\n")


def test_a_missing_path_is_reported_in_one_line(tmp_path: Path) -> None:
    result = _run(tmp_path / "absent")
    assert result.exit_code == 2
    assert result.stderr == f"isthmus: {tmp_path / 'absent'}: no such file or folder\n"


def test_several_processes_give_the_same_as_one(tree: Path) -> None:
    alone = list(project.convert(tree, project.Request(), processes=1))
    assert list(project.convert(tree, project.Request(), processes=2)) == alone


def _notebook(*cells: str) -> str:
    document = {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# torch.cuda \u00e9\n"]},
            *(
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": cell.splitlines(keepends=True),
                }
                for cell in cells
            ),
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def test_code_cells_of_notebooks_are_converted(tmp_path: Path) -> None:
    file = tmp_path / "train.ipynb"
    file.write_text(
        _notebook("%matplotlib inline\nimport torch", "%%bash\nnvidia-smi", "x = x.cuda()\n!nvidia-smi", "x")
    )
    assert "IM101 tensor-cuda: 1 change in 1 file\n  train.ipynb#cell4:1\n" in _run(file, "--write").stderr
    constant = 'DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")'
    once = file.read_text()
    assert once == _notebook(
        f"%matplotlib inline\nimport torch\n\n{constant}",
        "%%bash\nnvidia-smi",
        "x = x.to(DEVICE)\n!nvidia-smi",
        "x",
    )
    _run(file, "--write")
    assert file.read_text() == once


def test_hostile_sources_are_one_finding_and_the_rest_is_converted(tree: Path) -> None:
    (tree / "minus.py").write_text(f"x = y.cuda()\nz = {'-' * 3000}1\n")
    (tree / "deep.ipynb").write_text(_notebook("x.cuda()").replace("{}", "[" * 50000 + "]" * 50000))
    (tree / "surrogate.ipynb").write_text(_notebook("x.cuda()").replace("x.cuda", r"'\ud800'; x.cuda"))
    result = _run(tree)
    assert result.exit_code == 0, result.output
    assert "+++ b/plain.py" in result.stdout
    for name in ("minus.py", "deep.ipynb", "surrogate.ipynb#cell2"):
        assert f"  {name}: manual: " in result.stderr
        assert name.partition("#")[0] not in result.stdout


def test_outputs_are_checked_before_a_source_is_changed(tree: Path, tmp_path: Path) -> None:
    absent, same = tmp_path / "absent" / "log.json", tmp_path / "same"
    source = tree / "plain.py"
    for arguments, said in (
        (["--log", absent], f"--log {absent}: not a writable path"),
        (["-o", source], f"--output {source}: would overwrite a source"),
        (["-o", same, "--log", same], f"--log {same}: same file as --output"),
    ):
        result = _run(tree, "--write", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"isthmus: {said}")
        assert _bytes(tree) == FILES


def test_a_link_is_followed_to_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real.py").write_text(SOURCE)
    link, patch_file = tmp_path / "link.py", tmp_path / "patch"
    link.symlink_to("folder/real.py")
    result = _run(link, "-o", patch_file)
    assert result.stderr.splitlines()[0] == (
        f"isthmus: {link} is a symbolic link; converting its target, with a patch for {folder}"
    )
    _git(folder, "init", "-q")
    _git(folder, "apply", patch_file)
    applied = (folder / "real.py").read_text()
    _git(folder, "apply", "-R", patch_file)
    assert (folder / "real.py").read_text() == SOURCE != applied
    _run(link, "--write")
    assert link.is_symlink() and (folder / "real.py").read_text() == applied


def test_a_folder_that_is_a_link_is_that_folder(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree)
    assert _run(tmp_path / "link").stdout == _run(tree).stdout != ""


def test_a_link_in_a_circle_is_one_line(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    result = _run(loop, "-o", tmp_path / "patch")
    assert (result.exit_code, result.stderr) == (2, f"isthmus: {loop}: no such file or folder\n")


def test_read_only_files_are_refused_before_one_is_changed(tree: Path) -> None:
    file = tree / "windows.py"
    file.chmod(0o444)
    result = _run(tree, "--write")
    assert (result.exit_code, _bytes(tree)) == (1, FILES)
    line = f"isthmus: {file}: read-only (mode 0444); run `chmod u+w {file}`; no file was changed\n"
    assert result.stderr == line
    assert _run(tree).exit_code == 0, "a patch can be made of it"


def test_the_other_name_of_a_file_keeps_its_text(tree: Path, tmp_path: Path) -> None:
    file = tree / "plain.py"
    (tmp_path / "backup.py").hardlink_to(file)
    result = _run(file, "--write")
    assert f"isthmus: {file}: the old text remains in 1 other hard link\n" in result.stderr
    assert (tmp_path / "backup.py").read_text() == SOURCE != file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_names_are_quoted_as_git_does() -> None:
    assert patch.unified_patch('caf\xe9"'.encode(), b"a\n", b"b\n").splitlines()[0] == (
        b'diff --git "a/caf\\303\\251\\"" "b/caf\\303\\251\\""'
    )
    assert patch.unified_patch(b"x", b"a", b"a") == b""
