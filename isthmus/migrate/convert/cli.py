"""``isthmus migrate convert`` and ``isthmus migrate rules``."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus._support.exits import fail
from isthmus._support.tables import print_table
from isthmus._support.text import count
from isthmus.migrate.source.findings import Finding, Severity

if TYPE_CHECKING:
    from isthmus.migrate.convert.project import Converted, Request

TARGETS = ("chip", "npu", "xpu", "cuda")


def convert(
    path: Annotated[Path, typer.Argument(help="Folder, file or notebook.", show_default=False)],
    target: Annotated[str, typer.Option(help="chip, npu, xpu or cuda; by default any accelerator.")] = "",
    write: Annotated[
        bool, typer.Option("--write", help="Change the files instead of printing a patch.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the patch to this file.")
    ] = None,
    select: Annotated[
        list[str],
        typer.Option(help="Only these rules: codes, names, or prefixes of codes, such as IM101,IM2."),
    ] = [],  # noqa: B006 - typer's
    ignore: Annotated[list[str], typer.Option(help="Skip these rules.")] = [],  # noqa: B006
    ddp: Annotated[
        bool, typer.Option("--ddp", help="Also convert single-process training to DistributedDataParallel.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(help="Write changes and unconverted places to this JSON file.")
    ] = None,
) -> None:
    """Convert CUDA sources to device-neutral PyTorch: print a patch for `git apply`, or change files with --write."""
    from isthmus.migrate.convert.project import Request

    if target and target not in TARGETS:
        raise fail(f"--target {target}: unknown target; expected one of {', '.join(TARGETS)}", 2)
    if said := _mistake(path, output, log):
        raise fail(said, 2)
    path = _followed(path)
    request = Request(target, _names(select), _names(ignore), ("ddp",) if ddp else ())
    try:
        converted = _converted(path, request)
        if write and (said := _cannot_be_written(converted)):
            raise fail(said)
        if output is not None or not write:
            _print_patch(path, converted, output)
        if write:
            _write_files(converted)
        if log is not None:
            _write_log(log, target, converted)
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}; give a writable path") from None
    _print_log(converted, "changed" if write else "to change")


def _mistake(path: Path, output: Path | None, log: Path | None) -> str:
    """Return the error in the paths in one line, or ""."""
    if not path.exists():
        return f"{path}: no such file or folder"
    if output is not None and log is not None and output.resolve() == log.resolve():
        return f"--log {log}: same file as --output; give another file"
    for option, file in (("--output", output), ("--log", log)):
        if file is None:
            continue
        if file.is_dir() or not file.parent.is_dir():
            return f"{option} {file}: not a writable path; give a file in an existing folder"
        if file.resolve() == path.resolve() or (file.suffix in (".py", ".ipynb", ".sh") and file.exists()):
            return f"{option} {file}: would overwrite a source; give another file"
    return ""


def _followed(path: Path) -> Path:
    """Return the target of a link to a file: git stores a link as its path, which must not change."""
    if not (path.is_symlink() and path.is_file()):
        return path
    target = path.resolve()
    print(
        f"isthmus: {path} is a symbolic link; converting its target, with a patch for {target.parent}",
        file=sys.stderr,
    )
    return target


def _names(options: list[str]) -> tuple[str, ...]:
    return tuple(name for option in options for name in option.split(","))


def _converted(path: Path, request: Request) -> Sequence[Converted]:
    from isthmus.migrate.convert import project
    from isthmus.migrate.rules.registry import RegistryError

    try:
        return list(project.convert(path, request))
    except RegistryError as error:
        raise fail(error, 2) from None


def _print_patch(root: Path, converted: Sequence[Converted], output: Path | None) -> None:
    from isthmus._support.files import write_file
    from isthmus.migrate.convert import patch
    from isthmus.migrate.convert.project import relative_name

    parts = [
        patch.unified(relative_name(each, root), each.before, each.after)
        for each in converted
        if each.changes
    ]
    if output is not None:
        write_file(output, b"".join(parts))
    else:
        sys.stdout.buffer.write(b"".join(parts))
        sys.stdout.buffer.flush()


def _cannot_be_written(converted: Sequence[Converted]) -> str:
    """Return why a file cannot be written, in one line, or ""; checked before any is changed."""
    for path in (each.path for each in converted if each.changes):
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & 0o222:  # also for root, who could write it
            return f"{path}: read-only (mode {mode:04o}); run `chmod u+w {path}`; no file was changed"
        if not os.access(path.parent, os.W_OK | os.X_OK):
            return f"{path.parent}: not writable; fix its permissions; no file was changed"
    return ""


def _write_files(converted: Sequence[Converted]) -> None:
    """Replace the files, as git does: other hard links, such as those of a backup, keep the old text."""
    from isthmus._support.files import write_file

    for each in converted:
        if each.changes:
            status = each.path.stat()
            write_file(each.path, each.after, stat.S_IMODE(status.st_mode))
            if status.st_nlink > 1:
                others = count(status.st_nlink - 1, "other hard link")
                print(f"isthmus: {each.path}: the old text remains in {others}", file=sys.stderr)


def _write_log(path: Path, target: str, converted: Sequence[Converted]) -> None:
    from isthmus._support.files import write_file

    changes = [change._asdict() for each in converted for change in each.changes]
    findings = [
        finding._asdict() | {"severity": finding.severity.value}
        for each in converted
        for finding in each.findings
    ]
    document = {"version": 1, "target": target, "changes": changes, "left": findings}
    write_file(path, (json.dumps(document, indent=1) + "\n").encode())


def _print_log(converted: Sequence[Converted], verb: str) -> None:
    changes = [change for each in converted for change in each.changes]
    findings = [finding for each in converted for finding in each.findings]
    rows = [[f"{each.path}:{each.line}", each.code, each.message] for each in changes]
    rows += [[f"{each.path}:{each.line}", each.code, _said(each)] for each in findings]
    print_table(["place", "rule", "what"], rows, error=True, piped_head=False)
    files = sum(bool(each.changes) for each in converted)
    left = sum(each.severity is Severity.MANUAL for each in findings)
    look = f", {len(findings) - left} to review" if left < len(findings) else ""
    print(
        f"isthmus: {count(files, 'file')} {verb}, {count(len(changes), 'change')}, "
        f"{count(left, 'place')} left to convert by hand{look}",
        file=sys.stderr,
    )


def _said(finding: Finding) -> str:
    verb = "not converted" if finding.severity is Severity.MANUAL else "review"
    return f"{verb} {finding.subject}: {finding.message}; {finding.advice}"


def rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the conversion rules: code, name and effect."""
    from isthmus.migrate.rules.registry import RegistryError, all_rules

    try:
        found = sorted(all_rules(), key=lambda rule: rule.code)
    except RegistryError as error:
        raise fail(error) from None
    if as_json:
        print(json.dumps([rule.as_dict() for rule in found], indent=2))
    else:
        rows = [[each.code, each.name, each.summary] for each in found]
        print_table(["rule", "name", "effect"], rows, piped_head=False)
