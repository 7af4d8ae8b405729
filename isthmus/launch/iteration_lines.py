"""The lines that training frameworks print for an iteration: read from a job's output, and written.

Two formats: the iteration line of Megatron-LM and ModelLink, fields between bars; and InternEvo's
key=value line. Prefixes of a logger (time, level, process) are skipped on reading and left to the logger on
writing. Nothing here imports torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.launch.metrics import TgsStatistics


@dataclass(frozen=True)
class IterationRecord:
    """What a line says of one iteration; None is what it does not say.

    elapsed_ms is the mean time of an iteration in milliseconds; tgs is tokens per card and second; tflops is
    10^12 operations per card and second; mfu a fraction. grad_norms is InternEvo's, by parameter group;
    grad_norm is the norm of all.
    """

    iteration: int
    loss: float | None = None
    total_iterations: int | None = None
    consumed_samples: int | None = None
    consumed_tokens: int | None = None
    elapsed_ms: float | None = None
    learning_rate: float | None = None
    global_batch_size: int | None = None
    seq_length: int | None = None
    micro_batches: int | None = None
    loss_scale: float | None = None
    grad_norm: float | None = None
    grad_norms: Mapping[str, float] | None = None
    skipped_iterations: int | None = None
    nan_iterations: int | None = None
    samples_per_second: float | None = None
    tflops: float | None = None
    tgs: float | None = None
    real_tgs: float | None = None
    tgs_statistics: TgsStatistics | None = None
    mfu: float | None = None
    epoch: float | None = None


def parse_line(line: str) -> IterationRecord | None:
    """The record of an iteration line of either format; None for any other line, or a broken one."""
    return parse_megatron(line) or parse_internevo(line)


# ---- Megatron-LM, ModelLink ----------------------------------------------------------------------------

# Name, attribute, format: in the order in which ModelLink prints them.
_MEGATRON_FIELDS = (
    ("consumed samples", "consumed_samples", "12d"),
    ("consumed tokens", "consumed_tokens", "12d"),
    ("elapsed time per iteration (ms)", "elapsed_ms", ".1f"),
    ("learning rate", "learning_rate", ".3E"),
    ("global batch size", "global_batch_size", "5d"),
    ("lm loss", "loss", ".6E"),
    ("loss scale", "loss_scale", ".1f"),
    ("grad norm", "grad_norm", ".3f"),
    ("actual seqlen", "seq_length", "5d"),
    ("number of skipped iterations", "skipped_iterations", "3d"),
    ("number of nan iterations", "nan_iterations", "3d"),
    ("samples per second", "samples_per_second", ".3f"),
    ("TFLOPs", "tflops", ".2f"),
    ("tgs (tokens/gpu/second)", "tgs", ".2f"),
    ("MFU", "mfu", ".1%"),
)
_MEGATRON_NAMES = {name: (attribute, form) for name, attribute, form in _MEGATRON_FIELDS}
# Megatron-LM with --log-throughput.
_MEGATRON_NAMES["throughput per GPU (TFLOP/s/GPU)"] = ("tflops", ".1f")

_MEGATRON_START = re.compile(r"\biteration\s+(\d{1,18})/\s*(\d{1,18})\s*\|")


def parse_megatron(line: str) -> IterationRecord | None:
    """The record of an iteration line of Megatron-LM or ModelLink, or None."""
    start = _MEGATRON_START.search(line)
    if start is None:
        return None
    values: dict[str, float] = {}
    for part in line[start.end() :].split("|"):
        name, colon, text = part.partition(":")
        if colon and name.strip() in _MEGATRON_NAMES and text.split():
            attribute, form = _MEGATRON_NAMES[name.strip()]
            # Only the first word: the header of Megatron's timers, "time (ms)", may follow the last value.
            value = _number(text.split()[0], form)
            if value is None:
                return None
            values[attribute] = value
    return IterationRecord(int(start[1]), total_iterations=int(start[2]), **values)  # type: ignore[arg-type]


def _number(text: str, form: str) -> float | None:
    try:
        if form.endswith("d"):
            return int(text)
        return float(text.removesuffix("%")) / 100 if form.endswith("%") else float(text)
    except ValueError:
        return None


def format_megatron(record: IterationRecord) -> str:
    """The line of ModelLink: Megatron's with tokens, TFLOPs and tgs. Fields that are None are left out."""
    total = record.iteration if record.total_iterations is None else record.total_iterations
    fields = [f" iteration {record.iteration:8d}/{total:8d}"]
    for name, attribute, form in _MEGATRON_FIELDS:
        value = getattr(record, attribute)
        if value is not None:
            fields.append(f"{name}: {value:{form}}")
    return " | ".join(fields)


# ---- InternEvo -----------------------------------------------------------------------------------------

_STATISTICS = {
    "tgs/last_tgs_1": "last_tgs_1",
    "tgs/tgs_all": "tgs_all",
    "tgs/tgs_avg": "tgs_avg",
    "tgs/tgs_SMA": "tgs_SMA",
    "tgs/last_tgs_10": "last_tgs_10",
    "tgs/last_tgs_50": "last_tgs_50",
}
_TGS_KEY = "tgs (tokens/gpu/second)"
# A name begins where a word does: a line may be one word of megabytes.
_KEY_VALUE = re.compile(r"(tgs \(tokens/gpu/second\)|(?<![\w/])[\w/]+)=(\{[^}]*\}|[^\s,]+)")
_LONGEST = 1 << 14  # characters of a line that may be an iteration's
_GROUP_NORM = re.compile(r"'([^']*)':\s*([^\s,}]+)")


def parse_internevo(line: str) -> IterationRecord | None:
    """The record of InternEvo's key=value line (with or without commas between the pairs), or None."""
    if len(line) > _LONGEST or _TGS_KEY not in line:
        return None
    pairs = dict(_KEY_VALUE.findall(line))
    if not {"step", "loss", _TGS_KEY} <= pairs.keys():
        return None
    try:
        return _internevo_record(pairs)
    except ValueError:
        return None


def _internevo_record(pairs: Mapping[str, str]) -> IterationRecord:
    def real(key: str) -> float | None:
        return float(pairs[key]) if key in pairs else None

    def whole(key: str) -> int | None:
        return int(pairs[key]) if key in pairs else None

    statistics = None
    if pairs.keys() >= _STATISTICS.keys():
        statistics = TgsStatistics(**{name: float(pairs[key]) for key, name in _STATISTICS.items()})
    norms = _grad_norms(pairs["grad_norm"]) if "grad_norm" in pairs else None
    return IterationRecord(
        iteration=int(pairs["step"]),
        loss=real("loss"),
        consumed_tokens=whole("num_consumed_tokens"),
        learning_rate=real("lr"),
        micro_batches=whole("micro_num"),
        loss_scale=real("loss_scale"),
        grad_norm=None if norms is None else math.hypot(*norms.values()),
        grad_norms=norms,
        skipped_iterations=whole("inf_nan_skip_batches"),
        tflops=real("tflops"),
        tgs=real(_TGS_KEY),
        real_tgs=real("real_tgs"),
        tgs_statistics=statistics,
        mfu=real("mfu"),
    )


def _grad_norms(text: str) -> dict[str, float]:
    """Norms by parameter group; a bare number, as older versions print it, is the norm of the only group."""
    groups = _GROUP_NORM.findall(text) if text.startswith("{") else [("0_default", text)]
    if not groups:
        raise ValueError(f"no norms in {text!r}")
    return {name: float(norm) for name, norm in groups}


def format_internevo(record: IterationRecord) -> str:
    """The message of InternEvo's line, values at full precision; keys that are None left out."""
    norms = record.grad_norms
    if norms is None and record.grad_norm is not None:
        norms = {"0_default": record.grad_norm, "1_fp32": 0.0}
    pairs: list[tuple[str, object]] = [
        ("tflops", record.tflops),
        ("step", record.iteration),
        ("loss", record.loss),
        ("real_tgs", record.real_tgs),
        (_TGS_KEY, record.tgs),
    ]
    if record.tgs_statistics is not None:
        pairs += [(key, getattr(record.tgs_statistics, name)) for key, name in _STATISTICS.items()]
    pairs += [
        ("lr", record.learning_rate),
        ("loss_scale", record.loss_scale),
        ("grad_norm", None if norms is None else dict(norms)),
        ("micro_num", record.micro_batches),
        ("num_consumed_tokens", record.consumed_tokens),
        ("inf_nan_skip_batches", record.skipped_iterations),
        ("mfu", record.mfu),
    ]
    return " ".join(f"{key}={value}" for key, value in pairs if value is not None)
