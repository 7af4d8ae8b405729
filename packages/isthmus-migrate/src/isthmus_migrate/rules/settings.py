"""Devices and backends in configuration files: YAML, TOML and JSON."""

import re
from collections.abc import Iterator, Mapping

from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.verdicts import Use, Verdict

_SETTING = re.compile(
    r"(?P<name>\w+)[\"']?\s*[:=]\s*[\"']?(?P<value>nccl|cuda(:\d+)?|gpu)[\"']?\s*(?=[,}\]]|$)", re.MULTILINE
)
_COMMENT = re.compile(r"(^|\s)#.*")
_FINDINGS = {
    Use.DEVICE: ("IM102", "set it to the device in use, or let the program choose"),
    Use.BACKEND: (
        "IM201",
        "leave it out for torch.distributed.get_default_backend_for_device(device), or set the device's",
    ),
}


def examine_settings(source: Source, known: Mapping[str, Verdict]) -> Iterator[Finding]:
    """Yield the settings whose value names CUDA, where the project's sources pass the setting to PyTorch.

    Args:
        source: the file.
        known: what the project uses a setting as, by its name.
    """
    for number, line in enumerate(source.text.splitlines() if known else (), 1):
        for match in _SETTING.finditer(_COMMENT.sub("", line)):
            verdict = known.get(match["name"])
            if verdict is None or (verdict.use is Use.BACKEND) != (match["value"] == "nccl"):
                continue
            code, advice = _FINDINGS[verdict.use]
            said = f"is the value of `{match['name']}`, {verdict.why}"
            place = source.name, number, number
            yield Finding(
                code, Severity.REVIEW, *place, f'"{match["value"]}"', said, advice, match.start() + 1
            )
