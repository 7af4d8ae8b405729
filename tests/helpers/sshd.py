"""An OpenSSH server on loopback with keys of its own, reached by a wrapper of ssh in PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus_cluster import inventory, remote
from isthmus_cluster.inventory import Inventory
from tests.helpers.free_port import free_port
from tools.repository import ROOT

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
_PATH = "/usr/sbin:/usr/bin:/bin"


@contextmanager
def hosts_over_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inventory]:
    """Yield an inventory of three loopback addresses with one card each, whose commands all go through ssh."""
    sshd = shutil.which("sshd", path=_PATH)
    real = shutil.which("ssh")
    if os.geteuid() or not sshd or not real:
        pytest.skip("needs root, ssh and sshd (package openssh-server)")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    lines = [
        *(f"ListenAddress {address}:{port}" for address in ADDRESSES),
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/user.pub",
        *("StrictModes no", "UsePAM no", "PidFile none", "PermitRootLogin prohibit-password"),
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    options = (
        f"-i {folder}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known -o LogLevel=ERROR"
    )
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {real} -F none {options} "$@"\n')
    (folder / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(remote, "is_local", lambda address: False)
    separation = Path("/run/sshd")
    made = not separation.exists()
    separation.mkdir(mode=0o755, exist_ok=True)
    server = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        entry = {"port": port, "cards": 1, "environment": {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}}
        hosts = [{"name": f"s{n}", "address": address, **entry} for n, address in enumerate(ADDRESSES)]
        found = inventory.parse({"hosts": hosts}, "test")
        _answers(found)
        yield found
    finally:
        server.terminate()
        server.wait(10)
        if made:
            separation.rmdir()


def _answers(found: Inventory) -> None:
    for _ in range(50):
        done = subprocess.run(
            remote.command(found.hosts[0], ["true"]), capture_output=True, text=True, check=False
        )
        if not done.returncode:
            return
        time.sleep(0.1)
    raise AssertionError(f"sshd does not answer: {done.stderr}")
