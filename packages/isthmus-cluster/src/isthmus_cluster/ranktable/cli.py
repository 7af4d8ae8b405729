"""``isthmus cluster ranktable``: rank tables of HCCL."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on

app = typer.Typer(
    help="Make, merge and check rank tables (RANK_TABLE_FILE) of HCCL.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def make(
    device_num: Annotated[
        str, typer.Option("--device_num", help="Logical devices of this server, end excluded.")
    ] = "[0,8)",
    visible_devices: Annotated[
        str, typer.Option("--visible_devices", help="Device ids of the logical devices 0, 1, ...")
    ] = "0,1,2,3,4,5,6,7",
    server_ip: Annotated[
        str, typer.Option("--server_ip", help="Address of this server. Default: that of its host name.")
    ] = "",
    device_num_per_node: Annotated[
        int, typer.Option("--device_num_per_node", help="Devices of a server.")
    ] = 8,
    hccn_conf: Annotated[
        Path, typer.Option("--hccn_conf", help="Device addresses, where hccn_tool gives none.")
    ] = Path("/etc/hccn.conf"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: hccl_*.json, as hccl_tools.py."),
    ] = None,
) -> None:
    """Write the rank table of this server, as hccl_tools.py does; of a cluster, use `isthmus cluster render`."""
    from isthmus_cluster.ranktable import files, make

    with exit_on(ClusterError):
        table, name = make.of_this_server(
            device_num, visible_devices, server_ip, device_num_per_node, hccn_conf
        )
        output = output or Path(name)
        files.write(table, output)
        print(output)


@app.command()
def merge(
    file_list: Annotated[
        list[Path],
        typer.Argument(help="Rank tables of servers, in the order of their ranks.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: hccl_{servers}s_{ranks}p.json."),
    ] = None,
) -> None:
    """Write one rank table for the servers of several, as merge_hccl.py does."""
    from isthmus_cluster.ranktable import files, merge

    with exit_on(ClusterError):
        table, name = merge.merge(file_list)
        output = output or Path(name)
        files.write(table, output)
        print(output)


@app.command()
def check(
    file_list: Annotated[list[Path], typer.Argument(help="Rank tables to check.", show_default=False)],
    prefix: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=126,
            help="Prefix length of the device network; device N of all servers shares a subnet.",
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option("--inventory", help="Inventory that the tables must agree with.")
    ] = None,
) -> None:
    """Report what HCCL would refuse when the job starts, with its error codes; exit with 1 if anything."""
    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.ranktable import files
    from isthmus_cluster.ranktable.check import check

    found = False
    with exit_on(ClusterError):
        against = inventories.read(inventory) if inventory else None
        for path in file_list:
            problems = check(files.read(path), prefix, against)
            for place, text, code in problems:
                print(f"isthmus: {path}: {place}: {text}{f' ({code})' if code else ''}", file=sys.stderr)
            found |= bool(problems)
            if not problems:
                print(f"{path}: valid")
    if found:
        raise typer.Exit(1)
