"""Check a rank table for what HCCL would refuse when the job starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from isthmus_cluster.inventory import Inventory
from isthmus_cluster.ranktable.schema import SCHEMAS, VERSIONS, Table10, Table12, Table20
from isthmus_cluster.validation import Problem, entry, format_value, problems

# Error codes as the public documents of CANN give them; they give none for version 2.0.
_FORMAT = {"1.0": "EI0004", "1.2": "EI0004", "2.0": ""}
_SUPER_POD = "EI0004, EI0014"
_ADDRESS = "EJ0004, EI0014"
_SUPER = ("super_pod", "super_device")


def check(
    table: dict[str, Any], prefix: int | None = None, inventory: Inventory | None = None
) -> list[Problem]:
    """Return the problems of a rank table.

    Args:
        table: its JSON.
        prefix: length of the device network's prefix; the devices of one id must then share a subnet.
        inventory: hosts and device addresses that it must agree with.
    """
    version = table.get("version")
    if version not in VERSIONS:
        known = ", ".join(f'"{each}"' for each in VERSIONS)
        text = f"expected one of {known}"
        text = f"{format_value(version)}: {text}" if "version" in table else f"is missing; {text}"
        return [Problem("version", text, "EI0004")]
    code = _FORMAT[version]
    if table.get("status") == "initializing":
        text = '"initializing": the table is still being written; wait until it is "completed"'
        return [Problem("status", text, code)]
    try:
        valid = SCHEMAS[version].model_validate(table)
    except ValidationError as error:
        found = _other_version(table, version) or problems(error)
        return [each._replace(code=_code(each.entry, code)) for each in found]
    if isinstance(valid, Table20):
        return [each._replace(code=each.code or code) for each in _ranks(valid)]
    steps = [_servers(valid), _devices(valid, prefix), _agreement(valid, inventory) if inventory else ()]
    if isinstance(valid, Table12):
        steps.append(_super_pods(valid))
    return [each._replace(code=each.code or code) for step in steps for each in step]


def _code(place: str, code: str) -> str:
    return _SUPER_POD if any(name in place for name in _SUPER) else code


def _other_version(table: dict[str, Any], version: str) -> list[Problem]:
    """Name the version where the entries are those of another one."""
    lists = {"server_list": '"1.0" or "1.2"', "rank_list": '"2.0"'}
    expected, other = ("rank_list", "server_list") if version == "2.0" else ("server_list", "rank_list")
    if expected in table or other not in table:
        return []
    text = f'"{version}": the table has {other}, an entry of version {lists[other]}; correct the version'
    return [Problem("version", text)]


def _servers(table: Table10 | Table12) -> Iterator[Problem]:
    if int(table.server_count) != len(table.server_list):
        text = f'"{table.server_count}": server_list has {len(table.server_list)}; write "{len(table.server_list)}"'
        yield Problem("server_count", text)
    ids = [
        (entry("server_list", i, "server_id"), server.server_id) for i, server in enumerate(table.server_list)
    ]
    yield from _find_repeated(ids, "remove one of the servers, or correct its id")


def _devices(table: Table10 | Table12, prefix: int | None) -> Iterator[Problem]:
    devices = [
        (entry("server_list", i, "device", j), i, device)
        for i, server in enumerate(table.server_list)
        for j, device in enumerate(server.device)
    ]
    ids = [(f"{place}.device_id", (i, device.device_id)) for place, i, device in devices]
    yield from _find_repeated(ids, "a device belongs to one rank; correct one", lambda key: key[1])
    ranks = [(f"{place}.rank_id", device.rank_id) for place, _, device in devices]
    yield from _check_rank_ids(ranks)
    addresses = [(f"{place}.device_ip", _canonical(device.device_ip)) for place, _, device in devices]
    remedy = "each device has an address of its own; `hccn_tool -i DEVICE -ip -g` prints it"
    yield from _find_repeated(addresses, remedy, code=_ADDRESS)
    backups = [(f"{place}.backup_device_ip", device.backup_device_ip) for place, _, device in devices]
    addresses += [(place, _canonical(address)) for place, address in backups if address]
    yield from _families(addresses)
    servers = {server.server_id: i for i, server in enumerate(table.server_list)}
    for place, address in addresses:
        if address in servers:
            text = (
                f'"{address}": also server_list[{servers[address]}].server_id; give the address of the device '
                "port, not of the host"
            )
            yield Problem(place, text, _ADDRESS)
    if prefix is not None:
        yield from _subnets(
            [(f"{place}.device_ip", d.device_id, d.device_ip) for place, _, d in devices], prefix
        )


def _families(addresses: list[tuple[str, str]]) -> Iterator[Problem]:
    first = ipaddress.ip_address(addresses[0][1]).version
    for place, address in addresses:
        if ipaddress.ip_address(address).version != first:
            yield Problem(
                place, f'"{address}": not IPv{first} as {addresses[0][0]}; use one address family', _ADDRESS
            )


def _subnets(devices: list[tuple[str, str, str]], prefix: int) -> Iterator[Problem]:
    """Compare the subnets of the devices with the same id on all servers."""
    first: dict[str, tuple[str, object]] = {}
    for place, device, address in devices:
        network = ipaddress.ip_network(
            f"{address}/{min(prefix, 32 if '.' in address else 128)}", strict=False
        )
        if network.num_addresses > 2 and ipaddress.ip_address(address) in (network[0], network[-1]):
            yield Problem(place, f'"{address}": the network or broadcast address of {network}', _ADDRESS)
        where, expected = first.setdefault(device, (place, network))
        if network != expected:
            text = f'"{address}": not in {expected} as {where}; put devices {device} of all servers in one subnet'
            yield Problem(place, text, _ADDRESS)


def _agreement(table: Table10 | Table12, inventory: Inventory) -> Iterator[Problem]:
    """Compare a table with the inventory."""
    hosts = {key: host for host in inventory.hosts for key in (host.name, host.address)}
    for i, server in enumerate(table.server_list):
        host = hosts.get(server.server_id)
        if host is None:
            text = f"{format_value(server.server_id)}: not in the inventory; correct it, or add the host"
            yield Problem(entry("server_list", i, "server_id"), text)
            continue
        cards = {card.index: card.address for card in host.cards}
        for j, device in enumerate(server.device):
            place = entry("server_list", i, "device", j)
            if int(device.device_id) not in cards:
                text = f'"{device.device_id}": host {host.name} has no such card; correct the table or the inventory'
                yield Problem(f"{place}.device_id", text)
            elif cards[int(device.device_id)] not in ("", device.device_ip):
                text = f'"{device.device_ip}": the card has {cards[int(device.device_id)]}; write that'
                yield Problem(f"{place}.device_ip", text, _ADDRESS)


def _super_pods(table: Table12) -> Iterator[Problem]:
    servers = {server.server_id: server for server in table.server_list}
    members = [
        (entry("super_pod_list", i, "server_list", j, "server_id"), member.server_id)
        for i, pod in enumerate(table.super_pod_list)
        for j, member in enumerate(pod.server_list)
    ]
    pods = [
        (entry("super_pod_list", i, "super_pod_id"), p.super_pod_id)
        for i, p in enumerate(table.super_pod_list)
    ]
    yield from _find_repeated(pods, "list its servers under one entry", code=_SUPER_POD)
    yield from _find_repeated(members, "a server is in one super pod; remove one", code=_SUPER_POD)
    for place, server_id in members:
        if server_id not in servers:
            yield Problem(
                place, f"{format_value(server_id)}: not in server_list; add it there or remove it", _SUPER_POD
            )
    listed = {server_id for _, server_id in members}
    for i, server in enumerate(table.server_list):
        if server.server_id not in listed:
            text = f"{format_value(server.server_id)}: in no super pod; add it to super_pod_list"
            yield Problem(entry("server_list", i, "server_id"), text, _SUPER_POD)
    places = {server.server_id: i for i, server in enumerate(table.server_list)}
    for pod in table.super_pod_list:
        ids = [
            (
                entry("server_list", places[member.server_id], "device", j, "super_device_id"),
                device.super_device_id,
            )
            for member in pod.server_list
            if member.server_id in servers
            for j, device in enumerate(servers[member.server_id].device)
        ]
        yield from _find_repeated(
            ids, "unique in a super pod; npu-smi prints the SDID of a card", code=_SUPER_POD
        )


def _ranks(table: Table20) -> Iterator[Problem]:
    if table.rank_count != len(table.rank_list):
        text = f"{table.rank_count}: rank_list has {len(table.rank_list)}; write {len(table.rank_list)}"
        yield Problem("rank_count", text)
    yield from _check_rank_ids(
        [(entry("rank_list", i, "rank_id"), r.rank_id) for i, r in enumerate(table.rank_list)]
    )
    owners: dict[str, tuple[str, int]] = {}
    for i, rank in enumerate(table.rank_list):
        layers = [level.net_layer for level in rank.level_list]
        for j, level in enumerate(rank.level_list):
            place = entry("rank_list", i, "level_list", j)
            if layers[j] <= max(layers[:j], default=-1):
                yield Problem(
                    f"{place}.net_layer", f"{layers[j]}: not above {layers[j - 1]}; list levels in order"
                )
            for k, address in enumerate(level.rank_addr_list):
                where = f"{place}.rank_addr_list[{k}].addr"
                if not address.valid:
                    yield Problem(
                        where, f"{format_value(address.addr)}: not an address of type {address.addr_type}"
                    )
                first, owner = owners.setdefault(address.addr.lower(), (where, i))
                if owner != i:
                    yield Problem(
                        where,
                        f"{format_value(address.addr)}: also {first}; ranks have addresses of their own",
                    )


def _check_rank_ids(ranks: list[tuple[str, Any]]) -> Iterator[Problem]:
    """Check that rank ids are 0 to N-1, each once."""
    yield from _find_repeated(ranks, "each rank has one id; number them from 0")
    last = len(ranks) - 1
    for place, rank in ranks:
        if int(rank) > last:
            yield Problem(
                place, f"{format_value(rank)}: above {last}, the last of {last + 1} ranks; number them from 0"
            )


def _find_repeated(
    values: Iterable[tuple[str, Any]],
    remedy: str,
    show: Callable[[Any], object] = lambda key: key,
    code: str = "",
) -> Iterator[Problem]:
    first: dict[Hashable, str] = {}
    for place, value in values:
        if value in first:
            yield Problem(place, f"{format_value(show(value))}: also {first[value]}; {remedy}", code)
        first.setdefault(value, place)


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))
