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

from isthmus_common.exits import fail
from isthmus_common.files import Replacement, replace_files, write_file
from isthmus_common.progress import Bar, say
from isthmus_common.tables import print_table
from isthmus_common.text import count
from isthmus_migrate import arguments
from isthmus_migrate.arguments import FailOn, Paths, Record, Target
from isthmus_migrate.source import versions
from isthmus_migrate.source.files import folder_of
from isthmus_migrate.source.findings import reach

if TYPE_CHECKING:
    from isthmus_migrate.convert.project import Converted, Request
    from isthmus_migrate.convert.style import Style

_INTERRUPTED = 130  # exit status after SIGINT, as of a shell


def convert(
    paths: Paths,
    target: Target = "",
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
    torch: Annotated[
        str, typer.Option(help="Oldest PyTorch that has to run the result, such as 2.1.", show_default=False)
    ] = "",
    evidence: Record = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Write changes with their evidence, and what is left, to this JSON file."),
    ] = None,
    fail_on: FailOn = "never",
) -> None:
    """Convert CUDA sources to device-neutral PyTorch: print a patch for `git apply`, or change files with --write.

    The exit status is 0 after a conversion, 1 if --fail-on applies or a file cannot be written, 2 for wrong usage.
    """
    from isthmus_migrate.convert import style
    from isthmus_migrate.convert.log import as_json, print_log
    from isthmus_migrate.convert.project import Request

    if said := arguments.mistake(paths, target, fail_on) or _describe_mistake(paths, output, log):
        raise fail(said, 2)
    paths = _resolve_links(paths)
    layout = style.find_style(folder_of(paths))
    record = arguments.evidence(evidence, paths)
    request = Request(
        target, _names(select), _names(ignore), ("ddp",) if ddp else (), _version(torch), record, layout
    )
    converted = _convert_paths(paths, request)
    try:
        if write and (said := _describe_unwritable(converted)):
            raise fail(said)
        if output is not None or not write:
            _print_patch(paths, converted, output)
        if write:
            _write_files(converted)
        if log is not None:
            write_file(log, as_json(converted, target))
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}; give a writable path") from None
    if layout.problem and any(each.changes for each in converted):
        say(layout.problem)
    if said := _describe_long_lines(converted, layout):
        say(said)
    print_log(converted, "changed" if write else "to change")
    if reach([finding for each in converted for finding in each.findings], fail_on):
        raise typer.Exit(1)


def _describe_mistake(paths: Sequence[Path], output: Path | None, log: Path | None) -> str:
    """Return the error in the files to write in one line, or ""."""
    if output is not None and log is not None and output.resolve() == log.resolve():
        return f"--log {log}: same file as --output; give another file"
    for option, file in (("--output", output), ("--log", log)):
        if file is None:
            continue
        if file.is_dir() or not file.parent.is_dir():
            return f"{option} {file}: not a writable path; give a file in an existing folder"
        sources = {path.resolve() for path in paths}
        if file.resolve() in sources or (file.suffix in (".py", ".ipynb", ".sh") and file.exists()):
            return f"{option} {file}: would overwrite a source; give another file"
    return ""


def _resolve_links(paths: Sequence[Path]) -> list[Path]:
    """Return paths with the targets of links to files: git stores a link as its path, which must not change."""
    found = [path.resolve() if path.is_symlink() and path.is_file() else path for path in paths]
    for path, target in zip(paths, found, strict=True):
        if path is not target:
            say(f"{path} is a symbolic link; converting its target, with a patch for {folder_of(found)}")
    return found


def _version(text: str) -> versions.Version:
    try:
        return versions.parse(text) if text else ()
    except ValueError as error:
        raise fail(f"--torch {error}", 2) from None


def _names(options: list[str]) -> tuple[str, ...]:
    return tuple(name for option in options for name in option.split(","))


def _convert_paths(paths: Sequence[Path], request: Request) -> Sequence[Converted]:
    from isthmus_migrate.convert import project
    from isthmus_migrate.convert.log import oldest_version
    from isthmus_migrate.rules.registry import RegistryError
    from isthmus_migrate.rules.requirements import settle_findings

    try:
        with Bar("files") as bar:
            found = list(project.convert(paths, request, progress=bar.count))
    except RegistryError as error:
        raise fail(error, 2) from None
    needed = versions.format_version(oldest_version(found))
    return [each._replace(findings=settle_findings(each.findings, needed)) for each in found]


def _print_patch(paths: Sequence[Path], converted: Sequence[Converted], output: Path | None) -> None:
    from isthmus_migrate.convert import patch
    from isthmus_migrate.convert.project import relative_name

    parts = [
        patch.unified_patch(relative_name(each, paths), each.before, each.after)
        for each in converted
        if each.changes
    ]
    if output is not None:
        write_file(output, b"".join(parts))
    else:
        sys.stdout.buffer.write(b"".join(parts))
        sys.stdout.buffer.flush()


def _describe_long_lines(converted: Sequence[Converted], layout: Style) -> str:
    """Return the changed lines that a person has to wrap, in one line, or ""."""
    texts = (
        (each.name, each.before.decode(errors="replace"), each.after.decode(errors="replace"))
        for each in converted
        if each.changes and each.name.endswith(".py")
    )
    places = [place for each in texts for place in layout.too_long(*each)]
    return (
        f"{layout.measured} allows {layout.width} characters a line: wrap {', '.join(places)}"
        if places
        else ""
    )


def _describe_unwritable(converted: Sequence[Converted]) -> str:
    """Return why a file cannot be written, in one line, or ""; checked before any is changed."""
    for path in (each.path for each in converted if each.changes):
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & 0o222:  # also for root, who could write it
            return f"{path}: read-only (mode {mode:04o}); run `chmod u+w {path}`; no file was changed"
        if not os.access(path.parent, os.W_OK | os.X_OK):
            return f"{path.parent}: not writable; fix its permissions; no file was changed"
    return ""


def _write_files(converted: Sequence[Converted]) -> None:
    """Replace all files or none, as git does: other hard links, such as those of a backup, keep the old text."""
    changed = [(each, each.path.stat()) for each in converted if each.changes]
    new = [Replacement(each.path, each.after, stat.S_IMODE(status.st_mode)) for each, status in changed]
    try:
        is_interrupted = replace_files(new)
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}") from None
    except KeyboardInterrupt:
        raise fail("interrupted; no file was changed", _INTERRUPTED) from None
    if is_interrupted:
        raise fail(f"interrupted; changed {count(len(new), 'file')}", _INTERRUPTED)
    for each, status in changed:
        if status.st_nlink > 1:
            others = count(status.st_nlink - 1, "other hard link")
            say(f"{each.path}: the old text remains in {others}")


def rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the conversion rules: code, name and effect."""
    from isthmus_migrate.rules.registry import RegistryError, all_rules

    try:
        found = sorted(all_rules(), key=lambda rule: rule.code)
    except RegistryError as error:
        raise fail(error) from None
    if as_json:
        print(json.dumps([rule.as_dict() for rule in found], indent=2))
    else:
        rows = [[each.code, each.name, each.summary] for each in found]
        print_table(["rule", "name", "effect"], rows, piped_head=False)
