"""Shell scripts: ``python -m torch.distributed.launch`` becomes ``torchrun``."""

import re

from isthmus.migrate.convert.engine import Result
from isthmus.migrate.convert.rule import Change
from isthmus.migrate.convert.rules.launch_module import LAUNCH, RUN, LaunchModule

# torchrun starts the script unbuffered, so -u is redundant.
_PLAIN = re.compile(r"\bpython3?(?:\s+-u)?\s+-m\s+torch\.distributed\.launch\b")
_USE_ENV = re.compile(r"[ \t]*(?<!\S)--use[_-]env(?!\S)")
_EMPTY = re.compile(r"\s*\\\r?\n?")


def convert_shell(text: str, path: str) -> Result:
    """Convert one shell script.

    Args:
        text: text of the script, with its original line ends.
        path: path for the log.
    """
    if LAUNCH not in text:
        return Result(text, [])
    lines: list[str] = []
    changes: list[Change] = []
    within = False  # a launcher command continued from the line before
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        is_comment = line.lstrip().startswith("#")
        within = not is_comment and (within or LAUNCH in line)
        new = _converted(line) if within else line
        if new != line:
            changes.append(Change(LaunchModule.code, path, number, number, _message(line)))
        lines.append(new)
        within = within and line.rstrip("\r\n").endswith("\\")
    return Result("".join(lines), changes)


def _converted(line: str) -> str:
    new = _PLAIN.sub("torchrun", line).replace(LAUNCH, RUN)
    shorter = _USE_ENV.sub("", new)
    return "" if shorter != new and _EMPTY.fullmatch(shorter) else shorter


def _message(line: str) -> str:
    return "becomes torchrun" if LAUNCH in line else "torchrun always uses the environment"
