"""What a .pt2 archive contains, read without executing anything of it."""

import io
import json
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from isthmus.infer.model import InferError

_PICKLED = ("custom_obj_", "opaque_obj_")  # names of objects that PyTorch unpickles
_SAMPLES = "data/sample_inputs/"


def models(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of an archive's exported programs and of its AOTInductor packages.

    Raises:
        InferError: not such an archive, a member's path leaves it, or loading it would unpickle arbitrary objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            for name, member in members.items():
                _refuse_pickles(path, name, archive, member)
    except (zipfile.BadZipFile, UnicodeDecodeError, json.JSONDecodeError, KeyError) as error:
        raise InferError(f"{path}: not a .pt2 archive ({error})") from None
    programs = [PurePosixPath(name).stem for name in members if name.startswith("models/")]
    packages = {name.split("/")[2] for name in members if name.startswith("data/aotinductor/")}
    if not programs and not packages:
        raise InferError(f"{path}: neither an exported program nor an AOTInductor package in the archive")
    return sorted(programs), sorted(packages)


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, str]:
    """Members by their name below the archive's folder."""
    found = {}
    for member in archive.namelist():
        parts = PurePosixPath(member).parts
        if member.startswith("/") or "\\" in member or ".." in parts:
            raise InferError(f"{path}: a member's path leaves the archive: {member!r}")
        found["/".join(parts[1:])] = member
    if archive.read(found["archive_format"]) != b"pt2":
        raise InferError(f"{path}: not a .pt2 archive")
    return found


def _refuse_pickles(path: Path, name: str, archive: zipfile.ZipFile, member: str) -> None:
    if PurePosixPath(name).name.startswith(_PICKLED) or (
        name.endswith("_config.json") and _uses_pickle(json.loads(archive.read(member)))
    ):
        raise InferError(f"{path}: {name} has pickled objects, which are not loaded")
    if name.startswith(_SAMPLES) and not _is_plain(archive.read(member)):
        raise InferError(f"{path}: {name} has objects other than tensors, which are not loaded")


def _uses_pickle(config: dict[str, Any]) -> bool:
    entries = config.get("config", {})
    return any(isinstance(each, dict) and each.get("use_pickle") for each in entries.values())


def _is_plain(data: bytes) -> bool:
    try:
        torch.load(io.BytesIO(data), map_location="meta", weights_only=True)
    except Exception:
        return not data
    return True


def devices(path: Path) -> set[str]:
    """Return the types of the devices that an archive's exported programs name."""
    with zipfile.ZipFile(path) as archive:
        texts = [archive.read(each).decode() for each in archive.namelist() if "/models/" in each]
    return {kind for text in texts for kind in re.findall(r'"device": \{"type": "(\w+)"', text)}


def require_device(path: Path, kind: str) -> None:
    """Raise an error if a type of devices is unknown to PyTorch in this process, as the chip without a driver."""
    try:
        torch.device(kind)
    except RuntimeError:
        raise InferError(f"{path}: made for {kind}, which is not registered; run `isthmus doctor`") from None
