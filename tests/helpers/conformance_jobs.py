"""Run ``isthmus conform``, and chips for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import isthmus.drivers


def conform(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus conform`` in a separate process."""
    command = [sys.executable, "-m", "isthmus", "conform", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=900, check=False)


def chip_with(folder: Path, library: Path, known: str) -> Path:
    """A driver.toml of the host chip with a library and known failures."""
    host = Path(isthmus.drivers.__file__).parent / "host" / "libisthmus_host.so"
    (folder / "known_failures.toml").write_text(known)
    file = folder / "driver.toml"
    file.write_text(
        f'name = "sample"\nlibrary = "{host}"\noperators = ["{library}"]\nknown_failures = "known_failures.toml"\n'
    )
    return file


def known_entry(**keys: str | float) -> str:
    """One entry of a file of known failures."""
    return "[[failure]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
