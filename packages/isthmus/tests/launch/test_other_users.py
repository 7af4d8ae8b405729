"""Access of other users and machines to a job on one node."""

from __future__ import annotations

import base64
import os
import pickle
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # here: another user may not be able to read the files

from tests.helpers.free_port import free_port
from tests.helpers.other_user import as_nobody, is_loopback, listening_addresses, needs_root

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "listening.py")
LIMIT = 120.0  # seconds: a hang fails the test


class Attack:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def attack(port: int, path: str) -> str:
    """Join a store, overwrite all that is there, and leave a pickle for the launcher."""
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=1))
    for key in store.list_keys():
        store.set(key, base64.b64encode(pickle.dumps(Attack(path))))
    return "joined"


@needs_root
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        "--nproc 2 --max-restarts 1 --monitor {folder}/monitor --health --health-dir {folder}/health",
        "--nproc 2 --nnodes 1:1 --rdzv-endpoint {name}:{port} --rdzv-id job",
        "--nproc 2 --node-rank 0 --master-addr {name} --master-port {port} --log-dir {folder}/logs",
        "--device cpu --nproc 2",
        "torchrun --standalone --nproc-per-node 2",
        "torchrun --master-port {port} --nproc-per-node 2",
    ],
)
def test_a_job_on_one_node(tmp_path: Path, options: str) -> None:
    """All sockets are on loopback, and another user cannot join the store of the ranks."""
    words = options.format(folder=tmp_path, name=socket.gethostname(), port=free_port()).split()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    settings = {"ISTHMUS_HOST_MEMORY": "64MiB", "ISTHMUS_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "isthmus", "run", "--quiet", *words, SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**kept, **settings, "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"},
    )
    try:
        end = time.monotonic() + LIMIT
        while not (tmp_path / "port").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        open_there = listening_addresses(process.pid)
        port = int((tmp_path / "port").read_text()) if (tmp_path / "port").exists() else 0
        refused = as_nobody(attack, port, str(tmp_path / "owned"))
        (tmp_path / "end").touch()
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0 and "sum [4.0, 4.0, 4.0]" in out, err[-4000:]
    assert port in {each for _, each in open_there}
    assert all(is_loopback(address) for address, _ in open_there), open_there
    assert "DistNetworkError" in refused and not (tmp_path / "owned").exists()
