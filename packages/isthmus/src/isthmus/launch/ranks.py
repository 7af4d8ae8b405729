"""The ranks of a job: their number, nodes, rendezvous and log folder."""

import os
import re
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus_common.files import make_folder

AGENT = "isthmus.launch.agent"


class JobError(ValueError):
    """The job cannot be started; the message is one line."""


def _flag(meaning: str, metavar: str | None, default: Any, *names: str, kind: type = str) -> Any:
    """Return a field with its flag of ``isthmus run``: names instead of the field's, placeholder and type."""
    return field(
        default=default, metadata={"names": names, "help": meaning, "metavar": metavar, "type": kind}
    )


@dataclass(frozen=True)
class Ranks:
    """Options for running a program as several processes, each a rank; each field is a flag of ``isthmus run``."""

    nproc: str = _flag(
        "run as N ranks on this node, by torchrun's agent; auto: one for each device",
        "N|auto", "", "--nproc", "--nproc-per-node",
    )  # fmt: skip
    nnodes: str = _flag("nodes; give the same command on each of them; default: 1", "M|MIN:MAX", "1")
    node_rank: int | None = _flag(
        "instead of --rdzv-endpoint: number of this node, from 0", "R", None, kind=int
    )
    master_addr: str = _flag("with --node-rank: address of node 0", "HOST", "")
    master_port: int | None = _flag(
        "with --node-rank: a free port of node 0; default: 29500", "PORT", None, kind=int
    )
    rdzv_endpoint: str = _flag("rendezvous, which numbers the nodes; HOST is one of them", "HOST:PORT", "")
    rdzv_id: str = _flag("name of the job, if several use that rendezvous", "NAME", "")
    max_restarts: int = _flag(
        "how often all ranks are restarted after one has failed; default: 0", "N", 0, kind=int
    )
    log_dir: str = _flag(
        "folder in which each job creates one, with two files for each rank and attempt: .out and .err; default: a "
        "temporary one, kept if the job fails", "FOLDER", "",
    )  # fmt: skip
    shown: str = _flag(
        "ranks of this node whose output the terminal shows, each line with its rank; default: rank 0, and the "
        "iterations of any rank", "0,1,...|all", "", "--local-ranks-filter",
    )  # fmt: skip
    progress: bool = _flag(
        "if the output is not a terminal: print a progress line in place of each iteration line (on a terminal it "
        "stands below the output)", None, False,
    )  # fmt: skip
    peak_tflops: float = _flag(
        "peak of one device, in 10^12 operations per second, for the MFU", "X", 0.0, kind=float
    )

    @property
    def number(self) -> int | None:
        """Ranks on this node; None for as many as devices."""
        return int(self.nproc) if self.nproc.isdecimal() else None

    def check(self) -> None:
        """Check that the options make sense together.

        Raises:
            JobError: they do not.
        """
        if self.nproc != "auto" and not re.fullmatch(r"[1-9]\d*", self.nproc):
            raise JobError(f"--nproc {self.nproc}: give 1 or more, or auto")
        if self.shown not in ("", "all") and not re.fullmatch(r"\d+(,\d+)*", self.shown):
            raise JobError(f"--local-ranks-filter {self.shown}: give local ranks, such as 0,1, or all")
        if self.number:
            check_shown(self.shown, self.number)
        if self.max_restarts < 0:
            raise JobError(f"--max-restarts {self.max_restarts}: give 0 or more")
        if not self.peak_tflops >= 0:
            raise JobError(f"--peak-tflops {self.peak_tflops}: give the peak of a device, above 0")
        self._check_nodes()

    def _check_nodes(self) -> None:
        least, most = self._nodes()
        if self.rdzv_endpoint:
            if self.node_rank is not None or self.master_addr or self.master_port is not None:
                raise JobError(
                    "--rdzv-endpoint: the nodes number themselves; leave out --node-rank and --master-*"
                )
        elif least != most:
            raise JobError(
                f"--nnodes {self.nnodes}: a varying number of nodes needs --rdzv-endpoint host:port"
            )
        elif most > 1 and (self.node_rank is None or not self.master_addr):
            raise JobError(
                f"--nnodes {self.nnodes}: give the rendezvous: --rdzv-endpoint host:port, the same on all nodes, or "
                "--node-rank R --master-addr host"
            )
        elif self.node_rank is not None and not 0 <= self.node_rank < most:
            raise JobError(f"--node-rank {self.node_rank}: nodes are numbered from 0 to {most - 1}")

    def _nodes(self) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)(?::(\d+))?", self.nnodes)
        least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < least <= most:
            raise JobError(f"--nnodes {self.nnodes}: give a number of nodes, or min:max")
        return least, most

    def torchrun(self) -> list[str]:
        """Options of torchrun, without ``--nproc-per-node``, which the agent adds."""
        options = [f"--nnodes={self.nnodes}", f"--max-restarts={self.max_restarts}"]
        if self.rdzv_endpoint:
            return [
                *options,
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={self.rdzv_endpoint}",
                f"--rdzv-id={self.rdzv_id or 'isthmus'}",
            ]
        if self.master_addr or self.master_port is not None:
            return [
                *options,
                *([f"--rdzv-id={self.rdzv_id}"] if self.rdzv_id else []),
                f"--node-rank={self.node_rank or 0}",
                f"--master-addr={self.master_addr or '127.0.0.1'}",
                f"--master-port={29500 if self.master_port is None else self.master_port}",
            ]
        # Same options as --standalone.
        return [*options, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={uuid.uuid4()}"]

    def make_folder(self, name: str) -> Path:
        """Create a folder for the logs of a job of that name: ``<log_dir>/<time>-<name>``, mode 0750.

        Without ``log_dir`` it is a folder for temporary files, mode 0700.

        Raises:
            JobError: it cannot be created.
        """
        safe = re.sub(r"[^\w.-]", "_", name)
        if not self.log_dir:
            try:
                return Path(tempfile.mkdtemp(prefix=f"isthmus-{safe}-"))
            except OSError as error:
                raise JobError(f"no temporary folder for logs: {error.strerror}; give --log-dir") from None
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{safe}"
        base, attempt = Path(self.log_dir), 1
        while True:
            folder = base / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                make_folder(base)
                folder.mkdir(mode=0o750)
                folder.chmod(0o750)
            except FileExistsError:
                if not base.is_dir():
                    raise JobError(f"--log-dir {self.log_dir}: not a folder; give another") from None
                attempt += 1
            except OSError as error:
                raise JobError(
                    f"--log-dir {self.log_dir}: {error.strerror}; give a folder that you may write"
                ) from None
            else:
                return folder


def check_shown(shown: str, ranks: int) -> None:
    """Check that the local ranks to show on the terminal exist on a node of so many ranks.

    Raises:
        JobError: one does not exist.
    """
    for each in re.findall(r"\d+", shown):
        if int(each) >= ranks:
            raise JobError(
                f"--local-ranks-filter {shown}: the ranks of this node are 0 to {ranks - 1}, or all"
            )


def threads(ranks: int) -> str:
    """OMP_NUM_THREADS of each rank on this node: an equal share of its cores."""
    return str(max(1, len(os.sched_getaffinity(0)) // ranks))
