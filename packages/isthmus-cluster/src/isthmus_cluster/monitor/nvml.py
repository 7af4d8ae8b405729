"""NVIDIA's management library, by the package nvidia-ml-py; it makes no CUDA context."""

from __future__ import annotations

from typing import Any

from isthmus_cluster.monitor.card import LOST, OK, WARNING, Card, Process, SourceError
from isthmus_common.processes import command_name


class Nvml:
    """The cards that NVML knows.

    Raises:
        SourceError: nvidia-ml-py or NVML is absent, or does not work.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise SourceError("NVIDIA cards: install the package nvidia-ml-py") from None
        self._library = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise SourceError(f"NVML: {error}; see whether nvidia-smi works") from None

    def __call__(self) -> list[Card]:
        """Return the cards; one that does not answer is lost."""
        return [self._card(index) for index in range(self._library.nvmlDeviceGetCount())]

    def _card(self, index: int) -> Card:
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            name = library.nvmlDeviceGetName(handle)
        except library.NVMLError as error:
            return Card(index, "NVIDIA", LOST, f"NVML: {error}")
        memory = self._measure("nvmlDeviceGetMemoryInfo", handle)
        utilization = self._measure("nvmlDeviceGetUtilizationRates", handle)
        power = self._measure("nvmlDeviceGetPowerUsage", handle)
        reason = self._problem(handle)
        return Card(
            index,
            name if isinstance(name, str) else name.decode(),  # bytes until version 12
            WARNING if reason else OK,
            reason,
            power_w=None if power is None else power / 1000,
            temperature_c=self._measure("nvmlDeviceGetTemperature", handle, library.NVML_TEMPERATURE_GPU),
            memory_used=memory and memory.used,
            memory_total=memory and memory.total,
            utilization=utilization and utilization.gpu / 100,
            processes=self._processes(handle),
        )

    def _measure(self, function: str, *arguments: Any) -> Any:
        """Call a function; None if the card does not support it."""
        try:
            return getattr(self._library, function)(*arguments)
        except self._library.NVMLError:
            return None

    def _problem(self, handle: Any) -> str:
        kind, period = self._library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self._library.NVML_VOLATILE_ECC
        if errors := self._measure("nvmlDeviceGetTotalEccErrors", handle, kind, period):
            return f"{errors} uncorrectable memory errors"
        *_, failed = self._measure("nvmlDeviceGetRemappedRows", handle) or [False]
        return "a row of memory cannot be remapped" if failed else ""

    def _processes(self, handle: Any) -> tuple[Process, ...] | None:
        found: dict[int, Process] = {}
        for kind in ("Compute", "Graphics"):
            processes = self._measure(f"nvmlDeviceGet{kind}RunningProcesses", handle)
            if processes is None:
                return None
            for each in processes:
                found[each.pid] = Process(each.pid, command_name(each.pid), each.usedGpuMemory)
        return tuple(found.values())
