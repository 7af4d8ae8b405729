"""Commands in cells of notebooks that depend on CUDA: ``!nvidia-smi``, ``!pip install flash-attn``."""

from collections.abc import Iterator

from isthmus.migrate.rules.shell import reported
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.notebooks import MARK


def detect(module: Module) -> Iterator[Finding]:
    """Yield the findings of commands and magics, as in a shell script."""
    if not module.mentions(MARK):
        return
    for number, line in enumerate(module.lines, 1):
        _, mark, command = line.partition(MARK)
        for each in reported(command) if mark else ():
            path, shown = module.place(number)
            yield each._replace(path=path, line=shown, end_line=shown)
