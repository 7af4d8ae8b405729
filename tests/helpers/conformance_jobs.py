"""Run ``isthmus conform``, and chips for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import isthmus.drivers
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor, Outcome
from isthmus.conformance.golden import Case
from isthmus.drivers.libraries import load
from isthmus.opset import schema_of
from tests.helpers import children


def conform(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus conform`` in a separate process."""
    return children.command(
        "conform", *arguments, light="generate" not in arguments, timeout=900, **environment
    )


def without_torch(*options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``isthmus`` in a separate process that cannot import PyTorch."""
    code = "import sys; sys.modules['torch'] = None; from isthmus_common.shell import main; main()"
    command = [sys.executable, "-c", code, *map(str, options)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)


def judge_case(path: Path, case: Case) -> Outcome:
    """Judge a case of an operator library on the host chip."""
    with Device.open(isthmus.drivers.find("host").candidates[0]) as device:
        library = load(str(path))  # owns its operators; may create streams
        return Executor(device).run(library.operators[case.operator], schema_of(case.operator), case)


def check_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that a command was refused in one line with these words."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def chip_with(folder: Path, library: Path, known: str) -> Path:
    """A driver.toml of the host chip with a library and known failures."""
    host = Path(isthmus.drivers.__file__).parent / "host" / "libisthmus_host.so"
    (folder / "known_failures.toml").write_text(known)
    file = folder / "driver.toml"
    file.write_text(
        f'name = "sample"\nlibrary = "{host}"\noperators = ["{library}"]\nknown_failures = "known_failures.toml"\n'
    )
    return file


def known_entry(kind: str = "failure", **keys: str | float) -> str:
    """One entry of a file of known failures."""
    return f"[[{kind}]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
