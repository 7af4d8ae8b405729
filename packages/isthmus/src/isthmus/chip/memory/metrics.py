"""Metrics in Prometheus' text format (0.0.4)."""

from collections.abc import Iterator
from typing import NamedTuple

from isthmus import _C
from isthmus.chip.memory.statistics import host_memory_stats, memory_stats_as_nested_dict

_POOLED = {
    "allocated_bytes": "bytes allocated by tensors",
    "active_bytes": "bytes allocated, or still in use by other streams",
    "requested_bytes": "bytes requested",
    "reserved_bytes": "bytes reserved from the driver",
    "inactive_split_bytes": "unused bytes of segments in use",
    "allocation": "allocations",
    "active": "blocks in use",
    "segment": "segments reserved from the driver",
    "inactive_split": "unused blocks of segments in use",
}
_COUNTED = {
    "num_alloc_retries": "allocations that emptied the cache first",
    "num_ooms": "out-of-memory errors",
    "num_device_alloc": "allocations from the driver",
    "num_device_free": "memory frees to the driver",
    "num_sync_all_streams": "waits for the device before memory was freed",
}
_PINNED = {
    "active_bytes": "bytes of pinned host memory in use",
    "allocated_bytes": "bytes of pinned host memory reserved from the driver",
}


class _Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: list[tuple[str, int]]


def prometheus() -> str:
    """Metrics of device memory, pinned memory and operator routes as text; "" before the first use."""
    if not _C.is_initialized():
        return ""
    metrics = [*_memory(), *_pinned_metrics(), *_dispatch()]
    return "".join(_text(metric) for metric in metrics if metric.samples)


def _text(metric: _Metric) -> str:
    name = f"isthmus_{metric.name}"
    head = f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind}\n"
    return head + "".join(f"{name}{labels} {value}\n" for labels, value in metric.samples)


def _memory() -> Iterator[_Metric]:
    devices = {index: memory_stats_as_nested_dict(index) for index in range(_C.device_count())}
    for key, meaning in _POOLED.items():
        cells = [
            (f'{{device="{index}",pool="{pool.removesuffix("_pool")}"}}', stats[key][pool])
            for index, stats in devices.items()
            for pool in ("all", "small_pool", "large_pool")
        ]
        for kind, suffix, column, when in (
            ("gauge", "", "current", "current"),
            ("gauge", "_peak", "peak", "peak"),
            ("counter", "_total", "allocated", "since process start"),
        ):
            samples = [(labels, cell[column]) for labels, cell in cells]
            yield _Metric(f"memory_{key}{suffix}", kind, f"{meaning}, {when}", samples)
    for key, meaning in _COUNTED.items():
        samples = [(f'{{device="{index}"}}', stats[key]) for index, stats in devices.items()]
        yield _Metric(f"memory_{key.removeprefix('num_')}_total", "counter", meaning, samples)


def _pinned_metrics() -> Iterator[_Metric]:
    stats = host_memory_stats()
    for key, meaning in _PINNED.items():
        yield _Metric(f"pinned_memory_{key}", "gauge", meaning, [("", stats[f"{key}.current"])])


def _dispatch() -> Iterator[_Metric]:
    stats = _C.dispatch_stats()
    calls = [(f'{{route="{route}"}}', count) for route, count in sorted(stats["calls"].items())]
    yield _Metric("operator_calls_total", "counter", "operator calls by route", calls)
    copied = [("", stats["fallback_bytes"])]
    yield _Metric("fallback_bytes_total", "counter", "bytes copied by the fallback route", copied)
    switches = [("", stats["set_device"])]
    yield _Metric("set_device_total", "counter", "calls of the driver's device_set", switches)
