"""Commands in cells of notebooks that depend on CUDA: ``!nvidia-smi``, ``!pip install flash-attn``."""

import re
from collections.abc import Iterator

from isthmus_migrate.rules.shell import find_in_line
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.notebooks import MARK

# `%time y = x.cuda()`: the rest of the line is Python.
_CODE = re.compile(r"(?<!%)%(time|timeit|prun|memit|mprun|lprun)\b.*\bcuda\b")


def detect(module: Module) -> Iterator[Finding]:
    """Yield the findings of commands and magics, as in a shell script."""
    if not module.mentions(MARK):
        return
    for number, line in enumerate(module.lines, 1):
        _, mark, command = line.partition(MARK)
        found = list(find_in_line(command)) if mark else []
        if mark and (magic := _CODE.search(command)):
            said = ("names CUDA in a line that IPython runs", "convert it by hand")
            place = ("", 0, 0, f"%{magic[1]}", *said, magic.start() + 1)
            found.append(Finding("IM133", Severity.REVIEW, *place))
        for each in found:
            path, shown = module.place(number)
            yield each._replace(path=path, line=shown, end_line=shown)
