"""Reports in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from isthmus_cluster.monitor.card import LOST, OK, WARNING, Card, Report

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEALTH = {OK: 0, WARNING: 1, LOST: 2}
_CARD = {
    "health": "Health of the card: 0 OK, 1 warning, 2 lost.",
    "power_watts": "Power draw.",
    "temperature_celsius": "Temperature.",
    "memory_used_bytes": "Memory in use by all processes.",
    "memory_total_bytes": "Size of the memory.",
    "utilization_ratio": "Utilization of the compute units, 0 to 1.",
    "processes": "Processes that hold memory of the card.",
}
_HELP = {
    "isthmus_host_up": "Whether the host answers.",
    "isthmus_host_report_age_seconds": "Time since the last report of the host.",
    "isthmus_card_info": "Product of the card.",
    **{f"isthmus_card_{name}": text for name, text in _CARD.items()},
    "isthmus_process_memory_bytes": "Memory of the card that a process holds.",
}
_Labels = dict[str, object]


def metrics(reports: Mapping[str, Report]) -> str:
    """Return gauges of hosts, cards and processes; there is none for what is not measured, or of a lost host."""
    samples: dict[str, list[tuple[_Labels, float]]] = {}
    for report in reports.values():
        for name, labels, value in _samples(report):
            if value is not None:
                samples.setdefault(name, []).append((labels, value))
    return "".join(family(name, text, samples[name]) for name, text in _HELP.items() if name in samples)


def family(
    name: str, text: str, samples: Iterable[tuple[Mapping[str, object], float]], kind: str = "gauge"
) -> str:
    """Return the lines of a metric.

    Args:
        name: of the metric.
        text: what it is.
        samples: labels and values.
        kind: gauge or counter.
    """
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_text(labels)} {value!r}" for labels, value in samples]
    return "".join(f"{line}\n" for line in lines)


def _samples(report: Report) -> Iterator[tuple[str, _Labels, float | None]]:
    host: _Labels = {"host": report.host}
    yield "isthmus_host_up", host, int(not report.error)
    yield "isthmus_host_report_age_seconds", host, round(report.age, 3)
    for card in () if report.error else report.cards:
        labels = {**host, "card": card.index}
        yield "isthmus_card_info", {**labels, "name": card.name}, 1
        for name, value in zip(_CARD, _values(card), strict=True):
            yield f"isthmus_card_{name}", labels, value
        for process in card.processes or ():
            of_process = {**labels, "pid": process.pid, "name": process.name}
            yield "isthmus_process_memory_bytes", of_process, process.memory


def _values(card: Card) -> tuple[float | None, ...]:
    """Return the values of a card in the order of _CARD."""
    return (
        _HEALTH[card.health],
        card.power_w,
        card.temperature_c,
        card.memory_used,
        card.memory_total,
        card.utilization,
        None if card.processes is None else len(card.processes),
    )


def _text(labels: Mapping[str, object]) -> str:
    parts = [f'{name}="{_escape_label(str(value))}"' for name, value in labels.items()]
    return f"{{{','.join(parts)}}}" if parts else ""


def _escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
