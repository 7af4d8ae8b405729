"""Contents of a .pt2 archive, read without executing anything of it."""

import io
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from isthmus.infer.model import InferError

_PICKLED = re.compile(r"(^|/)(custom|opaque)_obj_", re.IGNORECASE)  # names of objects that PyTorch unpickles
_SAMPLES = "data/sample_inputs/"


def models(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of an archive's exported programs and of its AOTInductor packages.

    Raises:
        InferError: not such an archive, a member's path leaves it, or loading it would execute more than the code of
            a package: unpickle objects, or evaluate text that is no arithmetic.
    """
    try:
        archive = _open(path)
        names = archive.get_all_records()
        _refuse_paths(path, names)
        for name in names:
            _refuse_code(path, name, archive)
        if archive.get_record("archive_format") != b"pt2":
            raise InferError(f"{path}: not a .pt2 archive")
    except InferError:
        raise
    except (RuntimeError, ValueError, AttributeError) as error:
        raise InferError(f"{path}: not a .pt2 archive ({str(error).splitlines()[0]})") from None
    programs = [PurePosixPath(name).stem for name in names if name.startswith("models/")]
    packages = {name.split("/")[2] for name in names if name.startswith("data/aotinductor/")}
    if not programs and not packages:
        raise InferError(f"{path}: neither an exported program nor an AOTInductor package in the archive")
    return sorted(programs), sorted(packages)


def _open(path: Path) -> Any:
    """PyTorch's own reader: another one may see other members."""
    return torch._C.PyTorchFileReader(str(path))


def _refuse_paths(path: Path, names: list[str]) -> None:
    for name in names:
        if name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts:
            raise InferError(f"{path}: a member's path leaves the archive: {name!r}")
    if len({name.lower() for name in names}) != len(names):  # the reader ignores case
        raise InferError(f"{path}: not a .pt2 archive (two members of one name)")


def _refuse_code(path: Path, name: str, archive: Any) -> None:
    lower = name.lower()
    if _PICKLED.search(name) or (lower.endswith("_config.json") and _uses_pickle(_json(archive, name))):
        raise InferError(f"{path}: {name} has pickled objects, which are not loaded")
    if (lower.startswith(_SAMPLES) or lower.endswith(".pt")) and not _is_plain(archive.get_record(name)):
        raise InferError(f"{path}: {name} has objects other than tensors, which are not loaded")
    if lower.startswith("models/"):
        from isthmus.infer.program_check import find_strange_text

        if (text := find_strange_text(_json(archive, name))) is not None:
            raise InferError(
                f"{path}: {name} has text that PyTorch may execute, which is not loaded: {text!r:.80}"
            )


def _json(archive: Any, name: str) -> Any:
    return json.loads(archive.get_record(name))


def _uses_pickle(config: dict[str, Any]) -> bool:
    entries = config.get("config", {}).values()
    return any(isinstance(each, dict) and each.get("use_pickle") for each in entries)


def _is_plain(data: bytes) -> bool:
    try:
        torch.load(io.BytesIO(data), map_location="meta", weights_only=True)
    except Exception:
        return not data
    return True


def devices(path: Path) -> set[str]:
    """Return the types of the devices that an archive's exported programs name."""
    archive = _open(path)
    texts = [
        archive.get_record(each).decode() for each in archive.get_all_records() if each.startswith("models/")
    ]
    return {kind for text in texts for kind in re.findall(r'"device": \{"type": "(\w+)"', text)}


def require_device(path: Path, kind: str) -> None:
    """Raise an error if a type of devices is unknown to PyTorch in this process, as the chip without a driver."""
    try:
        torch.device(kind)
    except RuntimeError:
        raise InferError(f"{path}: made for {kind}, which is not registered; run `isthmus doctor`") from None
