"""Convert shell scripts: ``python -m torch.distributed.launch`` becomes ``torchrun``."""

from isthmus_migrate.convert.engine import Result
from isthmus_migrate.rules.examine import edits_of
from isthmus_migrate.rules.shell import examine_shell
from isthmus_migrate.source import edits
from isthmus_migrate.source.files import Source


def convert_shell(source: Source) -> Result:
    """Convert a shell script."""
    findings = list(examine_shell(source))
    return Result(edits.apply(source.text, edits_of(findings)), findings)
