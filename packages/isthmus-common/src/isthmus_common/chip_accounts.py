"""Memory that processes hold on host chips, from the accounts of the chips, which are only read.

``packages/isthmus/csrc/drivers/host/ledger.h`` describes an account.
"""

import fcntl
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus_common.files import existing_private_folder

_SLOT = struct.Struct("Qq")  # bytes, process id
_FIRST_LOCK = (1 << 20) + 1  # a byte behind the contents for each slot, which its process has locked
_LOCK = "hhqqi0q"  # struct flock of fcntl(2): type, whence, start, length, process id
_NAME = re.compile(r"host-(\d+)-(\d+)")


class Account(NamedTuple):
    """Processes of this user on one host chip.

    Attributes:
        device: index.
        capacity: memory of the device, bytes.
        holders: living processes, each with its number and the bytes that it holds.
    """

    device: int
    capacity: int
    holders: tuple[tuple[int, int], ...]


def accounts() -> Iterator[Account]:
    """Yield the accounts that have a living process; a device is known by index and capacity."""
    folder = existing_private_folder()
    for path in sorted(folder.glob("host-*")) if folder else []:
        if (name := _NAME.fullmatch(path.name)) and (holders := tuple(_holders(path))):
            yield Account(int(name[1]), int(name[2]), holders)


def _holders(path: Path) -> Iterator[tuple[int, int]]:
    with path.open("rb") as account:
        data = account.read()
        for slot, (memory, pid) in enumerate(_SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size])):
            if pid and _is_locked(account.fileno(), _FIRST_LOCK + slot):
                yield pid, memory


def _is_locked(descriptor: int, byte: int) -> bool:
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind: int = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK
