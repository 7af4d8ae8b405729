"""Schemas of rank tables: versions 1.0 and 1.2, whose scalars are strings, and 2.0, whose numbers are numbers.

Sources: public descriptions of ``hccl.json`` in MindCluster's documentation and the generators of ascend-operator.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from isthmus_cluster.inventory import EID

VERSIONS = ("1.0", "1.2", "2.0")


def _digits(value: str) -> str:
    if not value.isascii() or not value.isdecimal():
        raise ValueError('expected digits, such as "0"')
    if value != str(int(value)):
        raise ValueError(f'leading zeros; write "{int(value)}"')
    return value


def _port(value: str) -> str:
    if not 1 <= int(_digits(value)) <= 65535:
        raise ValueError('expected a port from "1" to "65535"')
    return value


def _device_ip(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("not an IP address; `hccn_tool -i DEVICE -ip -g` prints it") from None
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        raise ValueError("not the address of a device port; `hccn_tool -i DEVICE -ip -g` prints it")
    return value


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)  # further entries are ignored, as HCCL ignores them


Digits = Annotated[str, AfterValidator(_digits)]
Port = Annotated[str, AfterValidator(_port)]
DeviceIp = Annotated[str, AfterValidator(_device_ip)]
Text = Annotated[str, Field(min_length=1)]


class Device(_Entry):
    """A device of a server, in version 1.0."""

    device_id: Digits
    device_ip: DeviceIp
    rank_id: Digits
    device_port: Port | None = None
    backup_device_ip: DeviceIp | None = None
    backup_device_port: Port | None = None


class Server(_Entry):
    """A server, in version 1.0."""

    server_id: Text
    device: Annotated[list[Device], Field(min_length=1)]
    host_nic_ip: str | None = None
    host_ip: str | None = None
    host_port: Port | None = None
    container_ip: str | None = None
    hardware_type: str | None = None


class Table10(_Entry):
    """A rank table of version 1.0."""

    version: Literal["1.0"]
    status: Literal["completed"]
    server_count: Digits
    server_list: Annotated[list[Server], Field(min_length=1)]


class SuperDevice(Device):
    """A device of a super pod, in version 1.2."""

    super_device_id: Digits


class SuperServer(Server):
    """A server of a super pod, in version 1.2."""

    device: Annotated[list[SuperDevice], Field(min_length=1)]  # type: ignore[assignment]


class PodServer(_Entry):
    """A server, as a super pod names it."""

    server_id: Text


class SuperPod(_Entry):
    """A super pod, in version 1.2."""

    super_pod_id: Text
    server_list: Annotated[list[PodServer], Field(min_length=1)]


class Table12(_Entry):
    """A rank table of version 1.2, for super pods."""

    version: Literal["1.2"]
    status: Literal["completed"]
    server_count: Digits
    server_list: Annotated[list[SuperServer], Field(min_length=1)]
    super_pod_list: Annotated[list[SuperPod], Field(min_length=1)]


class RankAddress(_Entry):
    """An address of a rank on a network level, in version 2.0."""

    addr_type: Literal["EID", "IPV4"]
    addr: Text
    ports: list[Annotated[str, Field(pattern=r"^\d+/\d+$")]]
    plane_id: Text

    @property
    def valid(self) -> bool:
        """Whether ``addr`` is of the given type."""
        if self.addr_type == "EID":
            return bool(EID.fullmatch(self.addr))
        try:
            return bool(ipaddress.IPv4Address(self.addr))
        except ValueError:
            return False


class NetLevel(_Entry):
    """A network level of a rank, in version 2.0."""

    net_layer: Annotated[int, Field(ge=0)]
    net_instance_id: Text
    net_type: Literal["TOPO_FILE_DESC", "CLOS"]
    net_attr: str
    rank_addr_list: list[RankAddress]


class RankEntry(_Entry):
    """A rank, in version 2.0."""

    rank_id: Annotated[int, Field(ge=0)]
    local_id: Annotated[int, Field(ge=0)]
    device_id: Annotated[int, Field(ge=0)]
    device_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    replaced_local_id: Annotated[int, Field(ge=0)] | None = None
    level_list: Annotated[list[NetLevel], Field(min_length=1)]


class Table20(_Entry):
    """A rank table of version 2.0."""

    version: Literal["2.0"]
    status: Literal["completed"]
    rank_count: Annotated[int, Field(ge=1)]
    rank_list: Annotated[list[RankEntry], Field(min_length=1)]


Table = Table10 | Table12 | Table20
SCHEMAS: dict[str, type[Table]] = {"1.0": Table10, "1.2": Table12, "2.0": Table20}
