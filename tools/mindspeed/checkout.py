"""MindSpeed's and Megatron's files below build/, as MindSpeed's own CI arranges them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tools import mirrors
from tools.repository import ROOT

FOLDER = ROOT / "build/mindspeed"
MINDSPEED, MEGATRON = FOLDER / "MindSpeed", FOLDER / "Megatron-LM"
# Installed for MindSpeed only, and the vendor's wheel.
PACKAGES = (ROOT / "build/mindspeed-packages", ROOT / "build/torch_npu", MINDSPEED, MEGATRON)
CHECKPOINTS = "megatron/core/dist_checkpointing/strategies/filesystem_async.py"
# Changes to Megatron: file, text, and its replacement. PyTorch 2.13 asks for the format of a checkpoint; the
# versions for which MindSpeed's Megatron was made do not.
CHANGES = (
    ("pretrain_gpt.py", "import torch\nfrom", "import torch\nimport mindspeed.megatron_adaptor\nfrom"),
    (CHECKPOINTS, "_StoragePrefix, _write_item", "SerializationFormat, _StoragePrefix, _write_item"),
    (CHECKPOINTS, "write_item, storage_key)", "write_item, storage_key, SerializationFormat.TORCH_SAVE)"),
)
ENDINGS = (".py", ".cpp", ".h", ".json", ".txt", "Makefile")


class Versions(NamedTuple):
    """The commit of MindSpeed, and the tag of Megatron that its README asks for."""

    mindspeed: str
    megatron: str


def checked_out(places: Path) -> Versions:
    """Write both projects below build/, once for each version."""
    place = mirrors.repository(places, "Ascend/MindSpeed")
    commit = mirrors.git(place, "rev-parse", "HEAD").decode().strip()
    tags = re.findall(r"git checkout (\S+)", mirrors.git(place, "show", f"{commit}:README.md").decode())
    versions = Versions(commit[:10], tags[-1])
    mirrors.extract_once(place, versions.mindspeed, MINDSPEED, ENDINGS)
    megatron = mirrors.repository(places, "NVIDIA/Megatron-LM")
    mirrors.extract_once(megatron, versions.megatron, MEGATRON, ENDINGS)
    _adapt()
    return versions


def _adapt() -> None:
    """Add what MindSpeed's README and PyTorch 2.13 ask for, and put MindSpeed's tests beside Megatron's packages."""
    for file, text, adapted in CHANGES:
        path = MEGATRON / file
        source = path.read_text()
        if adapted not in source:
            path.write_text(source.replace(text, adapted))
    tests = MEGATRON / "tests_extend"
    if not tests.exists():
        tests.symlink_to(MINDSPEED / "tests_extend")
