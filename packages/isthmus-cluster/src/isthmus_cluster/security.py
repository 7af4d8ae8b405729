"""``isthmus security``: permissions, umask, user, address randomisation and open ports."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster.errors import ClusterError
from isthmus_common import hardening
from isthmus_common.exits import exit_on
from isthmus_common.finding import State, line, run_check
from isthmus_common.folders import folders
from isthmus_common.tables import print_table

if TYPE_CHECKING:
    from isthmus_cluster.ports import Flow

_UMASK = 0o027

app = typer.Typer(
    help="Check what protects a job and its files from other users.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
InventoryOption = Annotated[
    Path | None, typer.Option("--inventory", "-i", help="Inventory whose communication matrix is expected.")
]
PortOption = Annotated[int | None, typer.Option(help="Port of rank 0. Default: those of the launchers.")]


@app.callback()
def _security() -> None:
    pass


@app.command()
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files and folders: data, checkpoints, programs.", show_default=False),
    ] = None,
    inventory: InventoryOption = None,
    port: PortOption = None,
    allow: Annotated[
        list[int] | None, typer.Option(help="Further port that may be open; repeatable.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Other users may read data, programs and folders.")
    ] = False,
    deployed: Annotated[
        bool, typer.Option("--deployed", help="Nobody may write program files (0440).")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Remove permissions above the table, and print each change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check umask, user, address randomisation, caches, open ports and the permissions of files.

    Exits with 1 if a file has more permissions than the table allows.
    """
    from isthmus_cluster import permissions, ports

    with exit_on(ClusterError):
        flows = _flows(inventory, port)
        findings = [
            finding
            for subject, examine in {
                "umask": lambda: hardening.umask(_UMASK),
                "user": hardening.user,
                "aslr": hardening.random_addresses,
                "caches": folders,
                "ports": lambda: ports.examine(flows, allow or []),
            }.items()
            for finding in run_check(examine, subject)
        ]
        for path in paths or []:
            found = list(permissions.open_files(path, shared=shared, deployed=deployed))
            if fix:
                done = [permissions.repair(each) for each in found]
                for each in done:
                    print(each, file=sys.stderr)
                print(f"{path}: {permissions.summary(done)}", file=sys.stderr)
                found = list(permissions.open_files(path, shared=shared, deployed=deployed))
            findings += permissions.findings(path, found)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        print("\n".join(map(line, findings)))
    if any(finding.state is State.FAIL for finding in findings):
        raise typer.Exit(1)


@app.command()
def matrix(inventory: InventoryOption = Path("cluster.yaml"), port: PortOption = None) -> None:
    """Print the communication matrix of a job on all hosts: who connects to which port of whom, and why."""
    with exit_on(ClusterError):
        rows = [
            [flow.source, flow.destination, "-".join(map(str, sorted(set(flow.ports)))), "TCP", flow.purpose]
            for flow in _flows(inventory, port)
        ]
    print_table(["source", "destination", "ports", "protocol", "purpose"], rows)


def _flows(path: Path | None, port: int | None) -> "list[Flow]":
    """Return the communication matrix; without an inventory, none: a job on one machine needs no open port."""
    from isthmus_cluster import inventory, ports

    return ports.matrix(inventory.read(path), port, ports.ephemeral_ports()) if path else []
