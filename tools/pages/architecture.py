"""Draw docs/pictures/architecture.svg and packages.svg, and those of docs/zh.

The first is the way from a script to a chip; the second has the packages, with the arrows that their pyproject.toml
and their imports say.
"""

# ruff: noqa: RUF001 - Chinese punctuation

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from tools.pages.drawing import MARGIN, WIDTH, Drawing
from tools.repository import ROOT

INNER = WIDTH - 2 * MARGIN
GAP = 10
LANE = 22  # of an arrow between boxes
BESIDE = 132  # width of a box beside that of isthmus
FOLDERS = {"en": ROOT / "docs" / "pictures", "zh": ROOT / "docs" / "zh" / "pictures"}
COMMON, CORE = "isthmus-common", "isthmus"

# Texts of the boxes, in English and Chinese.
WORDS = {
    "title": ("From a script to a chip", "从脚本到芯片"),
    "script": ("Your script", "你的脚本"),
    "run": ("cuda → chip at run time;", "运行时把 cuda 换成 chip；"),
    "run 2": ("starts ranks, names failures", "启动各 rank，定位故障"),
    "migrate": ("or change the source, once:", "或一次性修改源码："),
    "migrate 2": ("analyse, convert, verify", "分析、转换、验证"),
    "chip": ("torch.chip and the core", "torch.chip 与核心"),
    "core": (
        "streams, events, allocators, generator, profiler, collectives",
        "流、事件、显存分配器、随机数、性能分析、集合通信",
    ),
    "dispatch": ("dispatch", "分派"),
    "driver": ("C table: memory, streams,", "C 函数表：内存、流、"),
    "driver 2": ("events, collectives", "事件、集合通信"),
    "operators": ("C table of kernels:", "C 算子表："),
    "operators 2": ("DLPack tensors, a stream", "DLPack 张量与流"),
    "conform": ("isthmus conform tests a chip at these two tables", "isthmus conform 在这两张表上检验芯片"),
    "host": ("host chip", "主机芯片"),
    "host 2": ("CPU threads", "CPU 线程"),
    "numpy": ("numpy chip", "numpy 芯片"),
    "numpy 2": ("Python", "Python"),
    "ascend": ("Ascend", "昇腾"),
    "ascend 2": ("AscendCL", "AscendCL"),
    "yours": ("your chip", "你的芯片"),
    "yours 2": ("driver, kernels", "驱动与算子"),
    "around": ("Around a job", "任务之外"),
    "formats": ("data, checkpoints", "数据集、权重"),
    "diagnostics": ("accuracy, profile", "精度、性能"),
    "cluster": ("check, isolate, watch", "检查、定位、值守"),
    "packages": ("The packages and their arrows", "软件包及其依赖"),
    "requires": ("requires", "依赖"),
    "uses": ("uses, if installed", "已安装时使用"),
}
# One line for each package.
PACKAGES = {
    "isthmus": ("the path of a running job", "运行中的任务所经路径"),
    "isthmus-ascend": ("an Ascend machine, no card", "无卡的昇腾环境"),
    "isthmus-cluster": ("hundreds of cards", "数百张卡的集群"),
    "isthmus-common": (
        "the command, options, files, tables; no PyTorch",
        "命令、选项、文件、表格；不需要 PyTorch",
    ),
    "isthmus-diagnostics": ("right and fast", "精度与性能"),
    "isthmus-formats": ("data, checkpoints", "数据集与权重"),
    "isthmus-migrate": ("moving a project's source", "项目源码迁移"),
    "isthmus-triton": ("Triton kernels as C", "将 Triton 内核编译为 C"),
    "isthmus-vllm": ("serving: a plugin of vLLM", "推理服务：vLLM 插件"),
}


class Package(NamedTuple):
    """A package with the packages of this repository that it requires, and those that it uses if installed."""

    name: str
    requires: frozenset[str]
    uses: frozenset[str]


def files() -> dict[Path, str]:
    """Return the text of each picture."""
    return {
        folder / f"{name}.svg": draw(index)
        for index, folder in enumerate(FOLDERS.values())
        for name, draw in (("architecture", architecture), ("packages", packages))
    }


def architecture(language: int) -> str:
    """Return the picture of the way from a script to a chip."""
    word = {name: words[language] for name, words in WORDS.items()}
    drawing = Drawing(word["title"])
    middle, half, quarter = WIDTH / 2, (INNER - GAP) / 2, (INNER - 3 * GAP) / 4
    y = float(MARGIN)

    def arrows(*places: float) -> None:
        nonlocal y
        for x in places:
            drawing.arrow(x, y, y + 18)
        y += 18

    def row(height: float, *boxes: tuple[str, ...], kinds: str = "own") -> None:
        nonlocal y
        width = (INNER - GAP * (len(boxes) - 1)) / len(boxes)
        for number, (box, kind) in enumerate(zip(boxes, kinds.split(",") * len(boxes), strict=False)):
            drawing.box(MARGIN + number * (width + GAP), y, width, height, *box, kind=kind)
        y += height

    left, right = MARGIN + half / 2, WIDTH - MARGIN - half / 2
    row(46, (word["script"], 'device="cuda", .cuda(), torch.cuda.*, backend="nccl"'), kinds="box")
    arrows(left, right)
    row(
        62,
        ("isthmus run", word["run"], word["run 2"]),
        ("isthmus migrate", word["migrate"], word["migrate 2"]),
    )
    arrows(left, right)
    row(46, ("PyTorch", "autograd, AMP, torch.compile, torch.distributed"), kinds="box")
    arrows(middle)
    row(46, (word["chip"], word["core"]))
    arrows(middle)
    row(46, (word["dispatch"], "native · kernel · delegate · decomposition · fallback"))
    arrows(left, right)
    row(
        62,
        ("driver.h", word["driver"], word["driver 2"]),
        ("operators.h", word["operators"], word["operators 2"]),
        kinds="interface",
    )
    y += 17
    drawing.text(middle, y, word["conform"], "small middle")
    y += 5
    arrows(*(MARGIN + quarter / 2 + number * (quarter + GAP) for number in range(4)))
    chips = [(word[name], word[f"{name} 2"]) for name in ("host", "numpy", "ascend", "yours")]
    row(46, *chips, kinds="own,own,own,interface open")
    y += 26
    drawing.text(MARGIN, y, word["around"], "name")
    y += 8
    row(46, *((name, word[name]) for name in ("formats", "diagnostics", "cluster")))
    return drawing.svg(y + MARGIN)


def read_packages() -> list[Package]:
    """Return the packages of this repository, by name."""
    found = []
    folders = {path.parent.name: path.parent for path in sorted(ROOT.glob("packages/*/pyproject.toml"))}
    for name, folder in folders.items():
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        requires = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]} & folders.keys()
        text = "".join(path.read_text() for path in sorted(folder.glob("src/**/*.py")))
        imported = set(re.findall(r"^ *(?:from|import) (isthmus\w*)", text, re.MULTILINE))
        extras = [each for extra in project.get("optional-dependencies", {}).values() for each in extra]
        uses = {each.replace("_", "-") for each in imported} | {
            re.split(r"[^\w-]", each)[0] for each in extras
        }
        uses &= folders.keys()
        found.append(Package(name, frozenset(requires), frozenset(uses - requires - {name})))
    return found


def packages(language: int) -> str:
    """Return the picture of the packages: those that need isthmus above it, the others beside it."""
    word = {name: words[language] for name, words in WORDS.items()}
    all_packages = [package for package in read_packages() if package.name not in (COMMON, CORE)]
    upper = [package for package in all_packages if CORE in package.requires | package.uses]
    beside = [package for package in all_packages if package not in upper]
    drawing = Drawing(word["packages"])
    half = (INNER - GAP) / 2
    height, between, y = 46, 30, float(MARGIN)

    def box(x: float, width: float, name: str, kind: str = "own") -> None:
        drawing.box(x, y, width, height, name, PACKAGES[name][language], kind=kind)

    # Rows of two. A lower row is narrower, so that the arrows of those above pass between its boxes to isthmus.
    rows = [upper[first : first + 2] for first in range(0, len(upper), 2)]
    base = y + len(rows) * (height + between)
    width = INNER - len(beside) * (BESIDE + GAP)
    for number, pair in enumerate(rows):
        own = half - LANE * number
        for column, package in enumerate(pair):
            x = MARGIN + column * (half + GAP + LANE * number)
            inner = LANE * (number + 0.5) if number + 1 < len(rows) else LANE * number + own / 2
            place = WIDTH / 2 + (GAP / 2 + inner) * (2 * column - 1)
            kind = "" if CORE in package.requires else "open"
            drawing.arrow(min(place, MARGIN + width - LANE / 2), y + height, base, kind)
            box(x, own, package.name)
        y += height + between
    bottom = y + height
    drawing.arrow(MARGIN + width / 2, bottom, bottom + between)
    for number, package in enumerate(beside):
        x = MARGIN + width + GAP + number * (BESIDE + GAP)
        drawing.arrow(x + BESIDE / 2, bottom, bottom + between)
        box(x, BESIDE, package.name)
    box(MARGIN, width, CORE)
    y = bottom + between
    box(MARGIN, INNER, COMMON)
    y += height + 24
    drawing.add("line", "line", x1=MARGIN, y1=y - 4, x2=MARGIN + 28, y2=y - 4)
    drawing.text(MARGIN + 36, y, word["requires"])
    drawing.add("line", "line open", x1=WIDTH / 2, y1=y - 4, x2=WIDTH / 2 + 28, y2=y - 4)
    drawing.text(WIDTH / 2 + 36, y, word["uses"])
    return drawing.svg(y + MARGIN)
