"""torchrun's agent, with our names for the files of the ranks, and callbacks at start and failure."""

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, parse_args

from isthmus import rendezvous as own_rendezvous
from isthmus.launch.watch import Rank
from isthmus_common.files import make_file
from isthmus_common.text import first_line

__all__ = ["Agent", "SignalException"]

_FAILED, _AGAIN = "isthmus/failed", "isthmus/again"  # keys of the attempt's store
_LOOK = 1.0  # seconds
_PATIENCE = 30  # seconds that ranks have to end after SIGTERM; torchrun's
_RESOLUTION = 15.0  # seconds; the name of a node that is starting may appear late

Started = Callable[[list[Rank], int], None]
Failed = Callable[[dict[int, Any], int], str]
FailedElsewhere = Callable[[str, bool], None]


class RankLogs(LogsSpecs):
    """``rank-<rank>.attempt-<attempt>.out`` and ``.err`` in one folder, mode 0640."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder
        self.attempt = -1
        self.ranks: list[Rank] = []

    @property
    def root_log_dir(self) -> str:
        """The folder."""
        return str(self.folder)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Files of the ranks that are about to start, by local rank."""
        self.attempt += 1
        self.ranks = [self._rank(local, envs[local]) for local in sorted(envs)]
        for rank in self.ranks:
            envs[rank.local_rank]["TORCHELASTIC_ERROR_FILE"] = str(rank.error)
            envs[rank.local_rank]["ISTHMUS_FAILURE_FILE"] = str(rank.failure)
        return LogsDest(
            stdouts={rank.local_rank: str(rank.stdout) for rank in self.ranks},
            stderrs={rank.local_rank: str(rank.stderr) for rank in self.ranks},
            error_files={rank.local_rank: str(rank.error) for rank in self.ranks},
        )

    def _rank(self, local_rank: int, environment: dict[str, str]) -> Rank:
        number = int(environment["RANK"])
        stem = self.folder / f"rank-{number}.attempt-{self.attempt}"
        rank = Rank(number, local_rank, int(environment["WORLD_SIZE"]), self.attempt, stem)
        for path in (rank.stdout, rank.stderr):
            make_file(path)
        return rank


class Agent(LocalElasticAgent):
    """Starts and restarts the ranks of this node, and reports it by callbacks."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        started: Started,
        before_end: Callable[[], None],
        failed: Failed,
        failed_elsewhere: FailedElsewhere,
    ) -> None:
        """Prepare to run.

        Args:
            arguments: torchrun's options, the program and its arguments.
            folder: where the files go.
            started: called with the ranks and the number of the attempt.
            before_end: called when a rank has failed, before the others are ended.
            failed: called with torchrun's failures by local rank, and the number of restarts that are left;
                returns one line for the other nodes.
            failed_elsewhere: called with such a line of another node, or "", and whether all ranks restart, before
                the ranks of this node are ended.

        Raises:
            RuntimeError: the rendezvous of the nodes cannot be reached.
        """
        config, entrypoint, program = config_from_args(parse_args(arguments))
        self._logs = RankLogs(folder)
        self._on_start, self._before_end = started, before_end
        self._on_failure, self._on_failure_elsewhere = failed, failed_elsewhere
        self._looks_at = 0.0
        self._is_ending = False
        self._meeting = config.rdzv_endpoint
        self._is_alone = config.max_nodes == 1
        self._is_static = config.rdzv_backend == "static"
        try:
            if not self._is_alone:
                _resolve(self._meeting)
            spec = _spec(config, entrypoint, program)
        except (RendezvousError, DistError, OSError) as error:
            raise _cannot_meet(self._meeting, error, self._is_alone) from error
        super().__init__(
            spec=spec,
            logs_specs=self._logs,
            start_method=config.start_method,
            shutdown_timeout=config.shutdown_timeout or _PATIENCE,
        )

    def run_ranks(self) -> bool:
        """Run until the ranks have ended; return whether all of this node succeeded.

        Raises:
            SignalException: this process received a signal that ends the job; the ranks have ended.
            RuntimeError: the nodes cannot connect, or have lost the connection; on one node, the store of the ranks
                cannot be opened.
        """
        meets_again = False
        try:
            return not self.run().is_failed()
        except SignalException:
            meets_again = True  # with the remaining nodes, as with torchrun
            raise
        except (RendezvousError, DistError, OSError) as error:
            if self._is_alone or self._logs.attempt < 0:
                raise _cannot_meet(self._meeting, error, self._is_alone) from error
            raise RuntimeError(
                f"the connection to the other nodes is lost ({first_line(error)}); see their output"
            ) from error
        finally:
            if not meets_again:
                self._worker_group.spec.rdzv_handler.shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = _PATIENCE) -> None:
        if self._is_ending:  # a second signal, while ranks are still ending
            death_sig = signal.SIGKILL
        self._is_ending = True
        super()._shutdown(death_sig, timeout)
        self._is_ending = False

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        processes: dict[int, Any] = super()._start_workers(worker_group)
        for rank in self._logs.ranks:
            rank.pid = processes[rank.local_rank]
        self._on_start(self._logs.ranks, self._logs.attempt)
        return processes

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if any(map(_has_failed, self._logs.ranks)):  # the base class ends the others
            self._before_end()
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state == WorkerState.FAILED:
            by_local_rank = {failure.local_rank: failure for failure in result.failures.values()}
            said = self._on_failure(by_local_rank, self._remaining_restarts)
            self._tell_nodes(worker_group, said)
        elif result.state == WorkerState.HEALTHY and self._has_failed_elsewhere(worker_group):
            return RunResult(WorkerState.FAILED)
        return result

    def _has_failed_elsewhere(self, worker_group: WorkerGroup) -> bool:
        """Whether another node has published that this attempt failed; calls the callbacks if so."""
        now = time.monotonic()
        if now < self._looks_at:
            return False
        self._looks_at = now + _LOOK
        if said := _published_failure(worker_group, _FAILED):
            self._before_end()
            self._on_failure_elsewhere(said, False)
            self._remaining_restarts = 0
        # Nodes that number themselves detect by themselves that one of them joins again.
        elif self._is_static and (said := _published_failure(worker_group, _AGAIN)):
            self._on_failure_elsewhere(said, self._remaining_restarts > 0)
        return bool(said)

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        if worker_group.state == WorkerState.HEALTHY:  # another node joins again
            self._on_failure_elsewhere(_published_failure(worker_group, _AGAIN), True)
        super()._restart_workers(worker_group)

    def _tell_nodes(self, worker_group: WorkerGroup, said: str) -> None:
        """Publish to the other nodes that this attempt failed, so that they do not wait for the ranks of this one."""
        if (worker_group.group_world_size or 1) > 1 and worker_group.store is not None:
            with contextlib.suppress(DistError):  # the node that served the store has ended
                if self._remaining_restarts:
                    worker_group.store.set(_AGAIN, said)
                    return
                worker_group.store.set(_FAILED, said)
                time.sleep(2 * _LOOK)  # this process may serve the store


def _published_failure(worker_group: WorkerGroup, key: str) -> str:
    """The line that another node published for the failure of this attempt, or ""."""
    if (worker_group.group_world_size or 1) > 1 and worker_group.store is not None:
        with contextlib.suppress(DistError):
            if worker_group.store.check([key]):
                return str(worker_group.store.get(key).decode())
    return ""


def _resolve(endpoint: str) -> None:
    """Wait until the name of the rendezvous node can be resolved; PyTorch would try for minutes."""
    host, _ = parse_rendezvous_endpoint(endpoint, default_port=0)
    end = time.monotonic() + _RESOLUTION
    while True:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:
            if time.monotonic() > end:
                why = getattr(error, "strerror", None) or "not a host name"
                raise OSError(f"{host} cannot be resolved ({why})") from error
            time.sleep(_LOOK)
        else:
            return


def _cannot_meet(where: str, error: Exception, is_alone: bool) -> RuntimeError:
    if "EADDRINUSE" in str(error) or getattr(error, "errno", None) == errno.EADDRINUSE:
        port = where.rpartition(":")[2]
        return RuntimeError(f"port {port} is in use on {socket.gethostname()}; give another port")
    if is_alone:
        return RuntimeError(first_line(error))
    return RuntimeError(
        f"the nodes cannot connect at {where}: {first_line(error)}; start the same command on each of them, and "
        "check that they can reach that address and port"
    )


def _has_failed(rank: Rank) -> bool:
    """Whether it has failed and torchrun has not collected it yet."""
    try:
        found = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None and found.si_status != 0


def _spec(config: LaunchConfig, entrypoint: Any, program: list[str]) -> WorkerSpec:
    own_rendezvous.install()
    endpoint = config.rdzv_endpoint
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    address: tuple[str | None, int | None] = (None, None)
    if config.rdzv_backend == "static":
        address = parse_rendezvous_endpoint(endpoint, default_port=-1)
    return WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(program),
        rdzv_handler=rendezvous.get_rendezvous_handler(parameters),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=address[0],
        master_port=address[1],
        local_addr=config.local_addr,
        numa_options=config.numa_options,
    )
