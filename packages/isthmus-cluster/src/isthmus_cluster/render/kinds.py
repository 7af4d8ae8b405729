"""The kinds of launch files, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.ranktable import files, make
from isthmus_cluster.ranktable.schema import VERSIONS
from isthmus_cluster.render.job import File, Job
from isthmus_cluster.render.scripts import per_host
from isthmus_cluster.render.services import slurm, systemd
from isthmus_common.files import Replacement, make_folder, replace_files


def _without_environment(job: Job) -> None:
    """Check that no host has variables of its own, which a hostfile cannot hold."""
    for host in job.inventory.hosts:
        if host.environment:
            raise ClusterError(
                f"host {host.name}: a hostfile cannot set its environment ({', '.join(host.environment)}); "
                "set it by the launcher, and remove it from the inventory"
            )


def _hostfile(job: Job) -> list[File]:
    """Return a hostfile for DeepSpeed and Open MPI."""
    _without_environment(job)
    lines = [f"{host.address} slots={len(host.cards)}\n" for host in job.inventory.hosts]
    return [File("hostfile", "".join(lines))]


def _mpich(job: Job) -> list[File]:
    """Return a hostfile for MPICH and Intel MPI."""
    _without_environment(job)
    for host in job.inventory.hosts:
        if ":" in host.address:
            raise ClusterError(
                f"host {host.name}: {host.address}: MPICH's hostfile needs a name or an IPv4 address"
            )
    return [File("hostfile-mpich", "".join(f"{h.address}:{len(h.cards)}\n" for h in job.inventory.hosts))]


def _rank_table(version: str, job: Job) -> list[File]:
    return [File(f"rank_table_{version}.json", files.text(make.of_inventory(job.inventory, version)))]


KINDS: dict[str, Callable[[Job], list[File]]] = {
    "hostfile": _hostfile,
    "mpich": _mpich,
    **{kind: partial(per_host, kind) for kind in ("torchrun", "megatron", "msrun", "mindformers")},
    "slurm": slurm,
    "systemd": systemd,
    **{f"ranktable-{version}": partial(_rank_table, version) for version in VERSIONS},
}
_WITHOUT_PROGRAM = ("hostfile", "mpich", "ranktable")


def render(kind: str, job: Job, folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
    """Write the files of a kind into a folder, and remove those of an earlier render for hosts that are absent now.

    Returns:
        The paths of the files, and of those that were removed.

    Raises:
        ClusterError: the kind is unknown, an option is invalid, or the inventory lacks what it needs.
    """
    if kind not in KINDS:
        raise ClusterError(f"{kind}: unknown; expected {', '.join(KINDS)}")
    if not job.program and not kind.startswith(_WITHOUT_PROGRAM):
        raise ClusterError(f"{kind}: no program; give it after the options, such as train.py --lr 1e-4")
    job.check()
    found = KINDS[kind](job)
    make_folder(folder)
    replace_files([Replacement(folder / file.name, file.text.encode(), file.mode) for file in found])
    written = [folder / file.name for file in found]
    removed = [path for path in _made_files(folder, job.origin(kind)) if path not in written]
    for path in removed:
        path.unlink()
    return written, removed


def _made_files(folder: Path, origin: str) -> list[Path]:
    """Return the scripts and units in a folder with this comment of their origin."""
    files = [
        each for each in sorted(folder.iterdir()) if each.suffix in (".sh", ".service") and each.is_file()
    ]
    return [each for each in files if origin in each.read_text(errors="replace").splitlines()]
