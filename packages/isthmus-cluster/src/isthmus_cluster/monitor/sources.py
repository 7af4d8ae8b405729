"""Sources of measurements of this machine's cards: npu-smi, NVML, or a chip driver's telemetry.

Nothing here runs work on a card. Imports no torch, no pydantic.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from isthmus import drivers, options
from isthmus_cluster.monitor import host_chip, npu_smi
from isthmus_cluster.monitor.card import LOST, OK, WARNING, Card, SourceError
from isthmus_cluster.monitor.nvml import Nvml
from isthmus_common.parent import end_with_parent
from isthmus_common.processes import state

Source = Callable[[], list[Card]]
_NVIDIA = "dev/nvidia[0-9]*"
_NPU_SMI_S = 10.0
_SAMPLING_S = 0.1
_UNKNOWN = -1.0  # ISTHMUS_TELEMETRY_UNKNOWN
_HEALTH = {
    0: (OK, ""),
    1: (WARNING, "the driver reports a degraded card"),
    2: (LOST, "the driver reports a failure"),
}


def find(asked: str) -> Source:
    """Return a source; the vendor's tools come first, as some drivers take memory of a card to measure it.

    Args:
        asked: "npu-smi", "nvml" or "driver"; "" for the driver of ISTHMUS_DRIVER, else for what this machine has.

    Raises:
        SourceError: it does not work.
    """
    named = options.text("driver")
    driver = "" if named in drivers.DISABLED else named
    if asked == "npu-smi" or (not asked and not driver and shutil.which("npu-smi")):
        return _npu_smi
    if asked == "nvml" or (not asked and not driver and any(Path("/").glob(_NVIDIA))):
        return Nvml()
    return DriverTelemetry(driver)


def _npu_smi() -> list[Card]:
    try:
        done = subprocess.run(
            ["npu-smi", "info"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NPU_SMI_S,
            check=False,
            preexec_fn=lambda: end_with_parent(signal.SIGKILL),
        )
    except OSError as error:
        raise SourceError(f"npu-smi: {error.strerror}; install the NPU driver's tools") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"npu-smi info: no answer within {_NPU_SMI_S:.0f} s") from None
    if not (cards := npu_smi.parse(done.stdout)):
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise SourceError(f"npu-smi info: exit status {done.returncode}, no table of NPUs: {said}")
    return cards


class DriverTelemetry:
    """The optional telemetry of the chip driver that ``import torch`` would open, without PyTorch.

    Used memory and processes are known for the host chip only: for other drivers they need a current device, for
    which they take memory of the card.

    Args:
        name: of the driver, as in ISTHMUS_DRIVER.

    Raises:
        SourceError: no driver can be opened.
    """

    def __init__(self, name: str) -> None:
        from isthmus.drivers import driver, interface, loader

        self._errors = (driver.DriverCallError, loader.LoaderError)
        self._telemetry = interface.structure("telemetry")
        search = drivers.find(name)
        problem = search.problem
        for candidate in search.candidates:
            try:
                self._driver = driver.Driver(candidate.path, candidate.name)
                self._driver.initialize()
                self._driver.count()
                break
            except self._errors as error:
                problem = problem or f"driver {candidate.name}: {error}"
        else:
            raise SourceError(problem)
        self()  # begins the sampling period of some drivers
        time.sleep(_SAMPLING_S)

    def __call__(self) -> list[Card]:
        """Return the cards; one whose telemetry fails is lost."""
        cards = [self._card(index) for index in range(self._driver.count())]
        return host_chip.complete_cards(cards) if self._driver.name == "host" else cards

    def _card(self, index: int) -> Card:
        unknown = {name: _UNKNOWN for name, kind in self._telemetry._fields_ if kind is ctypes.c_double}
        found = self._telemetry(struct_size=ctypes.sizeof(self._telemetry), **unknown)
        try:
            properties = self._driver.properties(index)
            if self._driver.has("telemetry"):
                self._driver.telemetry(index, ctypes.byref(found))
        except self._errors as error:
            return Card(index, self._driver.name, LOST, str(error))

        def known(name: str) -> float | None:
            value = float(getattr(found, name))
            return None if value == _UNKNOWN else value

        health, reason = _HEALTH.get(found.health, _HEALTH[1])
        if health == OK and (errors := known("ecc_uncorrected")):
            health, reason = WARNING, f"{errors:.0f} uncorrectable memory errors"
        return Card(
            index,
            properties.name.decode(errors="replace"),
            health,
            reason,
            power_w=known("power_w"),
            temperature_c=known("temperature_c"),
            memory_total=properties.total_memory,
            utilization=known("compute_utilization"),
        )


def add_unreported(cards: list[Card], expected: list[int]) -> list[Card]:
    """Add what sources do not tell: cards that are missing, and processes that are stopped."""
    found = [
        replace(card, health=WARNING, reason=reason)
        if card.health == OK and (reason := _describe_stopped(card))
        else card
        for card in cards
    ]
    missing = set(expected) - {card.index for card in cards}
    found += [Card(index, "", LOST, "this host does not have the card") for index in missing]
    return sorted(found, key=lambda card: card.index)


def _describe_stopped(card: Card) -> str:
    stopped = [process.pid for process in card.processes or () if state(process.pid) == "T"]
    return f"stopped by a signal: process {', '.join(map(str, stopped))}" if stopped else ""
