"""Make rank tables: of this server as hccl_tools.py does, or of an inventory."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import EID, Card, Endpoint, Inventory, Level, Rank, is_ip
from isthmus_cluster.ranktable import devices as local

_GROUP = 4  # devices that are connected directly on servers with two groups of them
_FULL = (8, 16)


def of_this_server(
    device_num: str, visible_devices: str, server_ip: str, per_node: int, configuration: Path
) -> tuple[dict[str, Any], str]:
    """Return a table of version 1.0 for devices of this server, and the name of its file.

    The arguments are those of hccl_tools.py, and so is the table.

    Args:
        device_num: range of logical devices, ``[0,8)``; the end is excluded whatever the bracket.
        visible_devices: device ids of the logical devices, separated by commas.
        server_ip: address of this server; "" looks it up by its host name.
        per_node: devices of a server.
        configuration: file with the addresses of the devices, where hccn_tool gives none.

    Raises:
        ClusterError: an argument is wrong, or a device has no address.
    """
    logical = _range(device_num, per_node)
    visible = [device.strip() for device in visible_devices.split(",")]
    for each in visible:
        if not each.isascii() or not each.isdecimal():
            raise ClusterError(
                f"--visible_devices {visible_devices}: {each!r} is not a device id; give ids such as 0,1,2,3"
            )
    if len(set(visible)) < len(visible):
        raise ClusterError(f"--visible_devices {visible_devices}: an id occurs twice; give each device once")
    if logical.stop > len(visible):
        raise ClusterError(
            f"--device_num {device_num}: {len(visible)} devices are visible ({visible_devices}); logical devices "
            f"are 0 to {len(visible) - 1}: lower --device_num or extend --visible_devices"
        )
    server = server_ip or _own_address()
    if not is_ip(server) and (not re.fullmatch(r"[\w.-]+", server) or re.fullmatch(r"[\d.]+", server)):
        raise ClusterError(f"--server_ip {server!r}: not an address; give the IP address of this server")
    chosen = [visible[index] for index in logical]
    found = local.addresses(chosen, configuration)
    device = [
        {"device_id": each, "device_ip": found[each], "rank_id": str(rank)}
        for rank, each in enumerate(chosen)
    ]
    table: dict[str, Any] = {
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": server, "device": device, "host_nic_ip": "reserve"}],
        "status": "completed",
    }
    return table, f"hccl_{len(logical)}p_{''.join(map(str, logical))}_{server}.json"


def _range(text: str, per_node: int) -> range:
    match = re.fullmatch(r"\[(\d+),(\d+)[\])]", text, re.ASCII)
    if not match:
        raise ClusterError(f"--device_num {text}: not a range; write it as [0,8), first and end")
    first, end = int(match[1]), int(match[2])
    if end > per_node:
        raise ClusterError(f"--device_num {text}: above {per_node}; lower it or raise --device_num_per_node")
    if first >= end:
        raise ClusterError(
            f"--device_num {text}: no devices; the end is excluded and must be above the first"
        )
    if first < _GROUP < end and (first or end not in _FULL):
        raise ClusterError(
            f"--device_num {text}: crosses the groups [0,{_GROUP}) and [{_GROUP},{2 * _GROUP}); stay in one, or use "
            "all devices"
        )
    return range(first, end)


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        raise ClusterError(
            f"{socket.gethostname()}: this host name has no address; give the server's with --server_ip"
        ) from None


def of_inventory(inventory: Inventory, version: str) -> dict[str, Any]:
    """Return a table of all cards of an inventory.

    Args:
        inventory: hosts in the order of their ranks.
        version: 1.0, 1.2 for super pods, or 2.0.

    Raises:
        ClusterError: the inventory lacks what the version needs.
    """
    if version == "2.0":
        return _ranks(inventory)
    servers = []
    for host in inventory.hosts:
        device = [_device(rank, version) for rank in inventory.ranks if rank.host is host]
        servers.append({"server_id": host.address, "device": device, "host_nic_ip": "reserve"})
    table: dict[str, Any] = {
        "version": version,
        "server_count": str(len(servers)),
        "server_list": servers,
        "status": "completed",
    }
    if version == "1.2":
        table["super_pod_list"] = _super_pods(inventory)
    return table


def _device(rank: Rank, version: str) -> dict[str, str]:
    if not is_ip(rank.card.address):
        raise _missing_error(
            rank, f"address, an IP address (`hccn_tool -i {rank.card.index} -ip -g` prints it)"
        )
    device = {"device_id": str(rank.card.index), "device_ip": rank.card.address, "rank_id": str(rank.rank)}
    if version == "1.2":
        if rank.card.super_device_id is None:
            raise _missing_error(rank, "super_device_id (npu-smi prints it as SDID)")
        device["super_device_id"] = str(rank.card.super_device_id)
    return device


def _super_pods(inventory: Inventory) -> list[dict[str, Any]]:
    for host in inventory.super_pods.get("", []):
        raise ClusterError(f"host {host.name}: super_pod is missing; a rank table of version 1.2 needs it")
    return [
        {"super_pod_id": name, "server_list": [{"server_id": host.address} for host in hosts]}
        for name, hosts in inventory.super_pods.items()
    ]


def _missing_error(rank: Rank, what: str) -> ClusterError:
    return ClusterError(f"host {rank.host.name}, card {rank.card.index}: the inventory lacks its {what}")


def _ranks(inventory: Inventory) -> dict[str, Any]:
    ranks = [
        {
            "rank_id": rank.rank,
            "local_id": rank.card.index,
            "device_id": rank.card.index,
            "level_list": [_level(level) for level in rank.card.levels or [_only_level(inventory, rank)]],
        }
        for rank in inventory.ranks
    ]
    return {"version": "2.0", "status": "completed", "rank_count": len(ranks), "rank_list": ranks}


def _only_level(inventory: Inventory, rank: Rank) -> Level:
    """Return one level for a card whose networks are not described: all cards with an address reach one another."""
    card: Card = rank.card
    if not card.address:
        raise _missing_error(rank, "address, or its levels")
    endpoint = Endpoint(address=card.address, plane=str(card.rail or 0))
    return Level(layer=0, instance=inventory.name, endpoints=(endpoint,))


def _level(level: Level) -> dict[str, Any]:
    addresses = [
        {
            "addr_type": "EID" if EID.fullmatch(endpoint.address) else "IPV4",
            "addr": endpoint.address,
            "ports": list(endpoint.ports),
            "plane_id": endpoint.plane,
        }
        for endpoint in level.endpoints
    ]
    return {
        "net_layer": level.layer,
        "net_instance_id": level.instance,
        "net_type": level.type,
        "net_attr": "",
        "rank_addr_list": addresses,
    }
