"""Plot the measured results against their peers: docs/pictures/measurements.svg, and that of docs/zh.

Every figure comes from a file of benchmarks/results. A dot is a case of a benchmark, a bar the median of a row.
"""

# ruff: noqa: RUF001 - Chinese punctuation

from __future__ import annotations

import json
from collections.abc import Iterator
from math import log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tools.pages.architecture import FOLDERS
from tools.pages.drawing import MARGIN, WIDTH, Drawing
from tools.repository import ROOT

TITLE = ("Isthmus against its peers: ratio of time or memory", "Isthmus 与对比对象之比（耗时或显存）")
BETTER = ("1.0 = the peer; further left is better", "1.0 表示与对比对象相同，越靠左越好")
DOTS = (
    "Dots: the cases of a benchmark; bar and figure: their median.",
    "圆点：基准测试的各个用例；竖线与数字：中位数。",
)
CUT = ("Cases below 0.03 are drawn at 0.03.", "小于 0.03 的用例画在 0.03 处。")
MACHINE = (
    "Two CPU cores, host chip; the rows of H200: that GPU.",
    "双核 CPU、主机芯片；标注 H200 的各行在该 GPU 上测得。",
)
CALLS = ("add", "mul_", "view", "mm", "softmax", "empty")  # as in the README
AXIS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
LOWEST, HIGHEST = 0.03, 10.0
LEFT, RIGHT = 182, WIDTH - MARGIN - 44  # the ends of the axis
ROW = 36


class Row(NamedTuple):
    """Cases with one peer; the names are in English and Chinese."""

    what: tuple[str, str]
    peer: tuple[str, str]
    ratios: list[float]


def results(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of results."""
    rows: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())[
        "rows"
    ]
    return rows


def ratios(name: str, column: str, **values: object) -> list[float]:
    """Return a column of results, of the rows that have these values and one in the column."""
    found = [row for row in results(name) if values.items() <= row.items() and row.get(column) is not None]
    return [float(row[column]) for row in found]


def against(peer: str, name: str, column: str) -> list[float]:
    """Return the ratios to a peer on the CPU, with plain malloc and with one that keeps its memory."""
    return [row[column] for row in results(name) if row["peer"] in (peer, f"{peer}, malloc keeps memory")]


def of_operators(name: str, column: str) -> list[float]:
    """Return the ratios of time of the fused operators; a row of their memory names no operator."""
    return [row[column] for row in results(name) if "operator" in row and row.get(column) is not None]


def rows() -> Iterator[Row]:
    """Yield the rows of the plot."""
    cpu = ("CPU eager", "CPU eager")
    step = ("LLaMA step", "LLaMA 单步训练")
    calls = [row["ratio"] for row in results("overhead") if row["operator"] in CALLS]
    yield Row(("one operator call", "单次算子调用"), cpu, calls)
    yield Row(step, cpu, against("cpu", "train_step", "chip_over_peer"))
    fused = (f"{step[0]}, fused", f"{step[1]}，融合算子")
    yield Row(fused, cpu, against("cpu", "train_step", "operators_over_peer"))
    compiled = (f"{step[0]}, compiled", f"{step[1]}，编译")
    peer = ("CPU, torch.compile", "CPU，torch.compile")
    yield Row(compiled, peer, against("cpu, torch.compile", "compile_step", "chip_over_peer"))
    parallel = (f"{step[0]}, 2 ranks", f"{step[1]}，2 个 rank")
    yield Row(
        parallel, ("CPU and gloo", "CPU 与 gloo"), against("cpu, gloo", "parallel_step", "chip_over_peer")
    )
    collectives = ratios("collectives", "chip_over_gloo", ranks=2, KiB=65536)
    yield Row(("collectives, 64 MiB", "集合通信，64 MiB"), ("gloo", "gloo"), collectives)
    operators = ("fused operators", "融合算子")
    gpu = (f"{operators[0]}, H200", f"{operators[1]}，H200")
    eager, compiler, liger = ((name, name) for name in ("PyTorch eager", "torch.compile", "Liger-Kernel"))
    yield Row(operators, eager, of_operators("llm_operators", "over_eager"))
    yield Row(operators, compiler, of_operators("llm_operators", "over_compile"))
    yield Row(gpu, eager, of_operators("llm_operators_gpu", "over_eager"))
    yield Row(gpu, compiler, of_operators("llm_operators_gpu", "over_compile"))
    yield Row(gpu, liger, of_operators("llm_operators_gpu", "over_liger"))
    checkpoints = [1 / each for each in ratios("checkpoint", "pytorch_over_ours")]
    yield Row(("checkpoints", "权重读写"), ("PyTorch's own files", "PyTorch 自带格式"), checkpoints)
    reserved = ratios("allocators", "reserved/torch", allocator="planned")
    yield Row(("memory reserved", "显存占用"), ("PyTorch's allocator", "PyTorch 分配器"), reserved)
    ascend = [row["ratio"] for row in results("ascend_compare")]
    yield Row(("Ascend driver", "昇腾驱动"), ("torch_npu, no card", "torch_npu（无卡）"), ascend)


def files() -> dict[Path, str]:
    """Return the plot of each language."""
    return {folder / "measurements.svg": plot(index) for index, folder in enumerate(FOLDERS.values())}


def place(ratio: float) -> float:
    """Return the x of a ratio on the logarithmic axis; what lies beyond an end is drawn at it."""
    ratio = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + (RIGHT - LEFT) * log(ratio / LOWEST) / log(HIGHEST / LOWEST)


def plot(language: int) -> str:
    """Return the plot in a language."""
    drawing = Drawing(TITLE[language])
    shown = list(rows())
    drawing.text(MARGIN, 24, TITLE[language], "name")
    drawing.text(MARGIN, 42, BETTER[language])
    top = 72
    bottom = top + ROW * len(shown)
    for ratio in AXIS:
        x = place(ratio)
        drawing.add("line", "one" if ratio == 1 else "grid", x1=x, y1=top, x2=x, y2=bottom)
        drawing.text(x, top - 6, f"{ratio:g}" if ratio != 1 else "1.0", "small middle")
    for number, row in enumerate(shown):
        y = top + ROW * (number + 0.5)
        drawing.text(MARGIN, y - 2, row.what[language], "name")
        drawing.text(MARGIN, y + 13, f"{('against ', '对比 ')[language]}{row.peer[language]}")
        for ratio in sorted(row.ratios):
            drawing.add("circle", "dot", cx=place(ratio), cy=y, r=4)
        middle = median(row.ratios)
        drawing.add("rect", "median", x=place(middle) - 1.5, y=y - 9, width=3, height=18)
        drawing.text(WIDTH - MARGIN, y + 4, f"{middle:.2f}", "name end")
    for line in (DOTS, CUT, MACHINE):
        bottom += 18
        drawing.text(MARGIN, bottom, line[language])
    return drawing.svg(bottom + MARGIN)
