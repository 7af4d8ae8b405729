"""The workspace of a call: poisoned, with guard zones on both sides."""

from collections.abc import Iterator

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.memory import CANARY, EDGE


class Workspace:
    """Scratch memory that one call of a kernel asks for, filled with a byte, the poison."""

    def __init__(self, device: Device, poison: int) -> None:
        self._device, self._poison = device, poison
        self._guard = -(-EDGE // device.alignment) * device.alignment
        self._blocks: list[tuple[int, int]] = []

    def allocate(self, nbytes: int) -> int:
        """Return the device address of nbytes bytes."""
        content = np.full(self._guard + nbytes + self._guard, CANARY, np.uint8)
        content[self._guard : self._guard + nbytes] = self._poison
        address = self._device.allocate(len(content))
        self._blocks.append((address, nbytes))
        self._device.write(address, content)
        return address + self._guard

    def overwrite(self, value: int, stream: int) -> None:
        """Enqueue a fill of all blocks."""
        for address, nbytes in self._blocks:
            self._device.fill(address + self._guard, value, nbytes, stream)

    def release(self) -> str:
        """Free all blocks, which no work may use; report writes to the guard zones in one line, or ""."""
        problems = [problem for block in self._blocks for problem in self._overruns(*block)]
        for address, _ in self._blocks:
            self._device.free(address)
        self._blocks.clear()
        return "; ".join(problems)

    def _overruns(self, address: int, nbytes: int) -> Iterator[str]:
        zones = (("before", address), ("behind", address + self._guard + nbytes))
        for side, start in zones:
            zone = np.frombuffer(self._device.read(start, self._guard), np.uint8)
            touched = np.flatnonzero(zone != CANARY)
            if not len(touched):
                continue
            far = self._guard - int(touched[-1]) if side == "before" else int(touched[0]) + 1
            yield (
                f"wrote outside its workspace of {nbytes} bytes: {len(touched)} bytes, the nearest {far} bytes "
                f"{side} it"
            )
