"""Folders of the code of Isthmus, to tell it from the user's."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    "isthmus",
    "isthmus_common",
    "isthmus_ascend",
    "isthmus_cluster",
    "isthmus_diagnostics",
    "isthmus_formats",
    "isthmus_migrate",
    "isthmus_triton",
    "isthmus_vllm",
)


@cache
def folders() -> tuple[str, ...]:
    """Return the folders of the installed packages of Isthmus, each with a separator at its end."""
    specs = map(find_spec, PACKAGES)
    return tuple(os.path.dirname(spec.origin) + os.sep for spec in specs if spec and spec.origin)  # noqa: PTH120


def is_users(path: str) -> bool:
    """Return whether a source file is the user's: neither installed, nor the standard library's, nor Isthmus's."""
    if f"{os.sep}site-packages{os.sep}" in path:  # fast path without file system access
        return False
    places = (Path(path).absolute(), Path(path).resolve())
    if any({"site-packages", "dist-packages"} & set(place.parts) for place in places):
        return False
    return not any(place.is_relative_to(folder) for place in places for folder in installed_folders())


@cache
def installed_folders() -> tuple[Path, ...]:
    """Return the folders of installed code: the standard library, site-packages, the packages of Isthmus."""
    import site
    import sysconfig

    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    found = [sysconfig.get_path(name) for name in names]
    found += [*site.getsitepackages(), site.getusersitepackages()]
    paths = [Path(folder) for folder in found]
    paths += map(Path, folders())
    return (*paths, *(path.resolve() for path in paths))
