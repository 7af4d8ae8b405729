"""The inventory of a cluster: hosts, cards, switches and links, as one YAML file.

The shortest inventory::

    hosts:
      - {name: node0, address: 10.0.0.1, cards: 8}
      - {name: node1, address: 10.0.0.2, cards: 8}
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.validation import Problem, format_value, problems
from isthmus_common.files import make_folder, write_file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EID = re.compile(r"[0-9A-Fa-f]{32}")
_MOST_CARDS = 1024


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("not a name; use letters, digits, '.', '_' and '-', a letter or digit first")
    return value


def _host_address(value: str) -> str:
    if not is_ip(value) and (not _NAME.fullmatch(value) or re.fullmatch(r"[\d.]+", value)):
        raise ValueError("not an address; give an IPv4 or IPv6 address, or a host name")
    return value


def _card_address(value: str) -> str:
    if value and not is_ip(value) and not EID.fullmatch(value):
        raise ValueError("not an address; give an IP address, or an EID of 32 hexadecimal digits")
    return value


def _user(value: str) -> str:
    if value and not _USER.fullmatch(value):
        raise ValueError("not a user name; use letters, digits, '_' and '-'")
    return value


def _environment(found: dict[str, str]) -> dict[str, str]:
    for name, value in found.items():
        if not _VARIABLE.fullmatch(name) or "\n" in value or "\0" in value:
            raise ValueError(f"{name}: not a variable of an environment; give NAME: VALUE on one line")
    return found


def is_ip(value: str) -> bool:
    """Whether a text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _optional_name(value: str) -> str:
    return _name(value) if value else value


Name = Annotated[str, AfterValidator(_name)]
OptionalName = Annotated[str, AfterValidator(_optional_name)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Endpoint(_Part):
    """An address of a card on one network level.

    Attributes:
        address: IP address or EID.
        ports: ports of the card that it uses, such as ``0/1`` for port 1 of die 0.
        plane: network plane.
    """

    address: Annotated[str, AfterValidator(_card_address), Field(min_length=1)]
    ports: tuple[Annotated[str, Field(pattern=r"^\d+/\d+$")], ...] = ()
    plane: str = "0"


class Level(_Part):
    """A network level of a card, for rank tables of version 2.0.

    Attributes:
        layer: 0 is the innermost.
        instance: network that the card is part of on this level; equal for the cards that it connects.
        type: ``CLOS``, or ``TOPO_FILE_DESC`` for a topology described by a file of the machine.
        endpoints: addresses of the card in it.
    """

    layer: Annotated[int, Field(ge=0)]
    instance: Name
    type: Literal["CLOS", "TOPO_FILE_DESC"] = "CLOS"
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1)]


class Card(_Part):
    """A card of a host.

    Attributes:
        index: device id on its host; with ``torch.chip`` or ``torch.cuda``, the device index.
        address: IP address of its own network port (Ascend's device_ip), or its EID; "" if it has none.
        super_device_id: its id in the super pod, for rank tables of version 1.2.
        rail: network plane that it is on; None if unknown.
        levels: its networks, for rank tables of version 2.0; () stands for one with ``address``.
    """

    index: Annotated[int, Field(ge=0)]
    address: Annotated[str, AfterValidator(_card_address)] = ""
    super_device_id: Annotated[int, Field(ge=0)] | None = None
    rail: Annotated[int, Field(ge=0)] | None = None
    levels: tuple[Level, ...] = ()


class Host(_Part):
    """A machine of the cluster.

    Attributes:
        name: unique name.
        address: IP address or host name that the other hosts reach it by; the name if absent.
        user: user of ssh; "" is the current one.
        port: port of ssh; None is ssh's default.
        namespace: network namespace of this machine that stands for the host; "" if it is a machine.
        rack: rack that it is in; "" if unknown.
        super_pod: super pod that it is in; "" if there are none.
        environment: variables of the commands that run on it.
        cards: its cards; a number N in the file stands for the cards 0 to N-1.
    """

    name: Name
    address: Annotated[str, AfterValidator(_host_address)]
    user: Annotated[str, AfterValidator(_user)] = ""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    namespace: OptionalName = ""
    rack: OptionalName = ""
    super_pod: OptionalName = ""
    environment: Annotated[dict[str, str], AfterValidator(_environment)] = {}
    cards: Annotated[tuple[Card, ...], Field(min_length=1, max_length=_MOST_CARDS)]

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        found = {"address": found.get("name"), **found}
        number = found.get("cards")
        if isinstance(number, int | str):
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST_CARDS:
                raise ValueError(
                    f"cards: {format_value(number)}: give a number from 1 to {_MOST_CARDS}, or a list of cards"
                )
            found["cards"] = [{"index": index} for index in range(number)]
        return found

    @model_validator(mode="after")
    def _check_unique(self) -> Host:
        _check_unique("card index", (card.index for card in self.cards))
        return self

    @property
    def rails(self) -> list[int]:
        """The rails that its cards are on, in ascending order."""
        return sorted({card.rail for card in self.cards if card.rail is not None})


class Switch(_Part):
    """A switch; ``rack`` and ``rail`` are those that it serves, or "" and None for several."""

    name: Name
    rack: OptionalName = ""
    rail: Annotated[int, Field(ge=0)] | None = None


class Link(_Part):
    """A link between two hosts, a host and a switch, or two switches.

    Attributes:
        ends: names of its two ends.
        rate: Gbit/s in each direction; None if unknown.
        rail: network plane that it belongs to; None if unknown.
    """

    ends: tuple[Name, Name]
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    rail: Annotated[int, Field(ge=0)] | None = None


class Rank(NamedTuple):
    """A rank of a job over the whole cluster.

    Attributes:
        rank: number among all ranks.
        local: number among those of its host.
        host, card: where it runs.
    """

    rank: int
    local: int
    host: Host
    card: Card


class Inventory(_Part):
    """The hosts of a cluster in the order of their ranks, and what connects them."""

    name: Name = "cluster"
    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    switches: tuple[Switch, ...] = ()
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Inventory:
        names = [host.name for host in self.hosts] + [switch.name for switch in self.switches]
        _check_unique("name", names)
        _check_unique("host address", ((host.address, host.port, host.namespace) for host in self.hosts))
        _check_unique(
            "card address", (card.address for host in self.hosts for card in host.cards if card.address)
        )
        _check_unique("super_device_id", self._super_devices())
        for number, link in enumerate(self.links):
            for end in link.ends:
                if end not in names:
                    raise ValueError(
                        f"links[{number}].ends: {end!r} is not a host or switch; add it to hosts"
                    )
            if link.ends[0] == link.ends[1]:
                raise ValueError(f"links[{number}].ends: both ends are {link.ends[0]!r}; name two")
        return self

    def _super_devices(self) -> Iterator[tuple[str, int]]:
        for host in self.hosts:
            for card in host.cards:
                if card.super_device_id is not None:
                    yield host.super_pod, card.super_device_id

    @property
    def world_size(self) -> int:
        """Cards of all hosts."""
        return sum(len(host.cards) for host in self.hosts)

    @property
    def ranks(self) -> list[Rank]:
        """One rank for each card: host by host, in the order of the file."""
        places = [(local, host, card) for host in self.hosts for local, card in enumerate(host.cards)]
        return [Rank(rank, *place) for rank, place in enumerate(places)]

    @property
    def racks(self) -> dict[str, list[Host]]:
        """Hosts by rack, those without one under ""."""
        return _group_by((host.rack, host) for host in self.hosts)

    @property
    def super_pods(self) -> dict[str, list[Host]]:
        """Hosts by super pod, those without one under ""."""
        return _group_by((host.super_pod, host) for host in self.hosts)

    def host(self, name: str) -> Host:
        """Return a host by its name.

        Raises:
            ClusterError: there is none.
        """
        found = next((host for host in self.hosts if host.name == name), None)
        if found is None:
            known = ", ".join(host.name for host in self.hosts[:8])
            raise ClusterError(f"{name}: unknown host; expected one of {known}")
        return found


def _group_by(pairs: Iterable[tuple[str, Host]]) -> dict[str, list[Host]]:
    groups: dict[str, list[Host]] = {}
    for key, host in pairs:
        groups.setdefault(key, []).append(host)
    return groups


def _check_unique(what: str, values: Iterable[object]) -> None:
    value, times = next(iter(Counter(values).most_common(1)), ("", 1))
    if times > 1:
        shown = next(filter(None, value), "") if isinstance(value, tuple) else value
        raise ValueError(f"{what} {shown} occurs {times} times; each must be unique")


def parse(found: object, place: str) -> Inventory:
    """Make an inventory from plain dictionaries and lists.

    Raises:
        ClusterError: it is invalid; ``place`` begins the message.
    """
    try:
        return Inventory.model_validate(found)
    except ValidationError as error:
        raise ClusterError(_first_problem(problems(error), place)) from None


def _first_problem(found: list[Problem], place: str) -> str:
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ": ".join(filter(None, [place, found[0].entry, found[0].text])) + others


def read(path: Path) -> Inventory:
    """Read an inventory.

    Raises:
        ClusterError: it cannot be read, or is invalid; the message has file, entry, value and remedy.
    """
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}; `isthmus cluster init` writes an inventory") from None
    except UnicodeDecodeError:
        raise ClusterError(f"{path}: not UTF-8; write the inventory as a YAML text file") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ClusterError(f"{path}{where}: not valid YAML: {problem or error}; correct this line") from None
    if found is None:
        raise ClusterError(f"{path}: is empty; `isthmus cluster init` writes an inventory")
    if not isinstance(found, dict):
        raise ClusterError(f"{path}: {found!r:.40}: not an inventory; begin with `hosts:`")
    return parse(found, str(path))


def write(inventory: Inventory, path: Path) -> None:
    """Write an inventory as YAML, with mode 0640; values that are defaults are left out."""
    make_folder(path.absolute().parent)
    write_file(path, text(inventory).encode())


def text(inventory: Inventory) -> str:
    """Return an inventory as YAML."""
    found = inventory.model_dump(mode="json", exclude_defaults=True)
    for host in found["hosts"]:
        if host["address"] == host["name"]:
            del host["address"]
        if host["cards"] == [{"index": index} for index in range(len(host["cards"]))]:
            host["cards"] = len(host["cards"])
    return yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=1000)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which a repeated key is an error instead of a replacement."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping.

        Raises:
            ConstructorError: it has a key twice.
        """
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} occurs twice", key.start_mark
                )
            seen.add(key.value if isinstance(key.value, str) else id(key))
        return super().construct_mapping(node, deep)
