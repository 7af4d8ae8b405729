"""Parsers of the lines that training frameworks print for an iteration.

Three formats: the line of Megatron-LM and ModelLink, with fields between bars; InternEvo's key=value line; and the
dictionary and progress bar of Hugging Face's Trainer. A logger's prefix (time, level, process) is skipped. Nothing
here imports torch.
"""

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class IterationRecord:
    """The values in the line of one iteration; None for a value that the line lacks.

    elapsed_ms is the mean time of an iteration in milliseconds; tgs is tokens per card and second; tflops is
    10^12 operations per card and second; mfu a fraction. iteration is 0 where a line has none.
    """

    iteration: int
    loss: float | None = None
    total_iterations: int | None = None
    consumed_tokens: int | None = None
    elapsed_ms: float | None = None
    global_batch_size: int | None = None
    seq_length: int | None = None
    tflops: float | None = None
    tgs: float | None = None
    mfu: float | None = None
    epoch: float | None = None


def parse_line(line: str) -> IterationRecord | None:
    """Parse a line of Megatron-LM, ModelLink or InternEvo; None for any other line, or a malformed one."""
    return parse_megatron(line) or parse_internevo(line)


# ---- Megatron-LM, ModelLink ------------------------------------------------------------------------------------

_MEGATRON_START = re.compile(r"\biteration\s+(\d{1,18})/\s*(\d{1,18})\s*\|")
_MEGATRON_FIELDS = {
    "consumed tokens": "consumed_tokens",
    "elapsed time per iteration (ms)": "elapsed_ms",
    "global batch size": "global_batch_size",
    "lm loss": "loss",
    "actual seqlen": "seq_length",
    "TFLOPs": "tflops",
    "throughput per GPU (TFLOP/s/GPU)": "tflops",  # Megatron-LM with --log-throughput
    "tgs (tokens/gpu/second)": "tgs",
    "MFU": "mfu",
}
_WHOLE = ("consumed_tokens", "global_batch_size", "seq_length")


def parse_megatron(line: str) -> IterationRecord | None:
    """Parse an iteration line of Megatron-LM or ModelLink; None for any other line."""
    start = _MEGATRON_START.search(line)
    if start is None:
        return None
    values: dict[str, float] = {}
    try:
        for part in line[start.end() :].split("|"):
            name, colon, text = part.partition(":")
            attribute = _MEGATRON_FIELDS.get(name.strip())
            if colon and attribute and text.split():
                # Only the first word: the header of Megatron's timers, "time (ms)", may follow the last value.
                values[attribute] = _number(text.split()[0], attribute)
    except ValueError:
        return None
    return IterationRecord(int(start[1]), total_iterations=int(start[2]), **values)  # type: ignore[arg-type]


def _number(text: str, attribute: str) -> float:
    if attribute in _WHOLE:
        return int(text)
    return float(text.removesuffix("%")) / 100 if attribute == "mfu" else float(text)


# ---- InternEvo -------------------------------------------------------------------------------------------------

_TGS_KEY = "tgs (tokens/gpu/second)"
# A name begins where a word does: a line may be one word of megabytes.
_KEY_VALUE = re.compile(r"(tgs \(tokens/gpu/second\)|(?<![\w/])[\w/]+)=(\{[^}]*\}|[^\s,]+)")
_LONGEST = 1 << 14  # characters of an iteration line


def parse_internevo(line: str) -> IterationRecord | None:
    """Parse InternEvo's key=value line, with or without commas between the pairs; None for any other line."""
    if len(line) > _LONGEST or _TGS_KEY not in line:
        return None
    pairs = dict(_KEY_VALUE.findall(line))
    if not {"step", "loss", _TGS_KEY} <= pairs.keys():
        return None
    try:
        return IterationRecord(
            iteration=int(pairs["step"]),
            loss=float(pairs["loss"]),
            consumed_tokens=int(pairs["num_consumed_tokens"]) if "num_consumed_tokens" in pairs else None,
            tflops=float(pairs["tflops"]) if "tflops" in pairs else None,
            tgs=float(pairs[_TGS_KEY]),
            mfu=float(pairs["mfu"]) if "mfu" in pairs else None,
        )
    except ValueError:
        return None


# ---- Hugging Face's Trainer ------------------------------------------------------------------------------------

# The bar of the steps has no title, unlike those of data sets and checkpoints.
_BAR = re.compile(r"\s*\d+%\|[^|]*\|\s*(\d+)/(\d+)\s*\[")


def parse_bar(text: str) -> tuple[int, int] | None:
    """Parse the last state of a progress bar into steps done and steps in total; None for any other text."""
    match = _BAR.match(text)
    return (int(match[1]), int(match[2])) if match else None


def parse_trainer(line: str) -> IterationRecord | None:
    """Parse a log of the Trainer, ``{'loss': 3.41, 'epoch': 0.1}``, without an iteration; None for any other line."""
    text = line.strip()
    if not text.startswith("{'loss'"):
        return None
    try:
        values = {name: float(value) for name, value in ast.literal_eval(text).items()}
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError, MemoryError):
        return None
    tokens = values.get("num_input_tokens_seen")
    return IterationRecord(
        iteration=0,
        loss=values["loss"],
        consumed_tokens=None if tokens is None else int(tokens),
        epoch=values.get("epoch"),
    )
