"""Dumps in the layout of msprobe (mindstudio-probe): ``step0/rank0/{dump,stack,construct}.json``.

Its level L1 names functions of PyTorch (``Functional.linear.0.forward``), ours operators: with a dump of this package
its modules are compared, two of its dumps in full. Files of tensors (.pt) are pickles, and are not read.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from isthmus_common.files import make_folder, write_file
from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.reading import Content, Place, Rank, Recorded
from isthmus_diagnostics.accuracy.statistics import Statistics

DUMP, STACK, CONSTRUCT = "dump.json", "stack.json", "construct.json"
_MODULE = re.compile(r"Module\.(?P<path>.+)\.(?P<kind>\w+)\.(?P<phase>forward|backward)\.(?P<visit>\d+)")
_API = re.compile(r"(?P<name>.+)\.(?P<visit>\d+)\.(?P<phase>forward|backward)")


def folders(folder: Path) -> list[Path]:
    """Return the folders of ranks in a dump of msprobe: that of the first step, or the folder itself."""
    if (folder / DUMP).is_file():
        return [folder]
    steps = sorted(folder.glob("step*"), key=_order)
    found = [path.parent for path in (steps[0] if steps else folder).glob(f"*/{DUMP}")]
    return sorted(found, key=_order)


def _order(path: Path) -> int:
    digits = re.search(r"\d+$", path.name)
    return int(digits[0]) if digits else 0


class _Theirs(Rank):
    has_root = False


def load(folder: Path, number: int) -> Rank:
    """Read the dump of one rank.

    Raises:
        AccuracyError: a file cannot be read.
    """
    try:
        document = json.loads((folder / DUMP).read_text())
        lines = _lines(folder / STACK)
        parents = json.loads((folder / CONSTRUCT).read_text()) if (folder / CONSTRUCT).is_file() else {}
        rank = _Theirs(folder, number, {"job": {}, "level": document.get("level", "")})
        for name, entry in document["data"].items():
            _add(rank, name, entry, lines.get(name, ""), parents)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AccuracyError(f"{folder}: cannot read the dump of msprobe: {error!r}") from None
    return rank


def _lines(path: Path) -> dict[str, str]:
    """Return the innermost line of the program by call."""
    found: dict[str, str] = {}
    if not path.is_file():
        return found
    for names, stack in json.loads(path.read_text()).values():
        line = next(
            (entry for entry in stack if "site-packages" not in entry and "/lib/python" not in entry), ""
        )
        if match := re.match(r"File (?P<file>.+), line (?P<line>\d+)", line):
            found |= dict.fromkeys(names, f"{Path(match['file']).name}:{match['line']}")
    return found


def _add(rank: Rank, name: str, entry: dict[str, Any], line: str, parents: dict[str, Any]) -> None:
    if match := _MODULE.fullmatch(name):
        place = Place(0, match["phase"], match["path"], int(match["visit"]))
        operator = "module"
    elif match := _API.fullmatch(name):
        parent = _MODULE.fullmatch(parents.get(name) or "")
        place = Place(
            0, match["phase"], parent["path"] if parent else "", int(parent["visit"]) if parent else 0
        )
        operator = match["name"]
    else:  # parameters and their gradients
        return
    inputs = _name_values("input", entry.get("input_args", entry.get("input", [])))
    inputs |= entry.get("input_kwargs") or {}
    call = Recorded(len(rank.calls), place, operator, line, "", {}, {}, {})
    for key, value in inputs.items():
        _argument(rank, call, key, value)
    for key, value in _name_values("output", entry.get("output", [])).items():
        if _is_tensor(value):
            call.outputs[key] = _content(rank, value)
    rank.calls.append(call)


def _name_values(kind: str, values: Any) -> dict[str, Any]:
    found = {}
    for index, value in enumerate(values or []):
        nested = value if isinstance(value, list) else [value]
        for place, each in enumerate(nested):
            found[f"{kind}[{index}]" + (f"[{place}]" if nested is value else "")] = each
    return found


def _argument(rank: Rank, call: Recorded, key: str, value: Any) -> None:
    if _is_tensor(value):
        call.inputs[key] = _content(rank, value)
    elif isinstance(value, dict) and "value" in value:
        call.arguments[key] = value["value"]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and "shape" in value


def _content(rank: Rank, value: dict[str, Any]) -> Content:
    numbers = [value.get(key) for key in ("Min", "Max", "Mean", "Norm")]
    statistics = None
    if isinstance(numbers[0], (int, float)):
        least, most, mean, norm = (math.nan if n is None else float(n) for n in numbers)
        special = not all(map(math.isfinite, (least, most)))
        statistics = Statistics(least, most, mean, norm, int(special))
    number = len(rank.contents)
    dtype = str(value.get("dtype", "")).removeprefix("torch.")
    rank.contents[number] = Content(number, dtype, tuple(value["shape"]), statistics, rank)
    return rank.contents[number]


# ---- Writing


def write(ranks: list[Rank], folder: Path) -> None:
    """Write a dump in msprobe's layout, statistics only."""
    for rank in ranks:
        for step in sorted({call.place.step for call in rank.calls}):
            _write_step(rank, [c for c in rank.calls if c.place.step == step], folder / f"step{step}")


def _write_step(rank: Rank, calls: list[Recorded], folder: Path) -> None:
    place = folder / f"rank{rank.number}"
    make_folder(place)
    data: dict[str, Any] = {}
    stack: dict[str, Any] = {}
    construct: dict[str, str | None] = {}
    counts: Counter[tuple[str, str]] = Counter()
    kinds = {
        call.place.module: str(call.arguments.get("class", "Module"))
        for call in calls
        if call.operator == "module"
    }
    for call in calls:
        name = _name(call, counts, kinds)
        data[name] = _entry(call)
        stack[str(len(stack))] = [[name], [_frame(call.line)] if call.line else []]
        parent = call.place.module if call.operator != "module" else call.place.module.rpartition(".")[0]
        construct[name] = _module_name(parent, kinds, call.place) if parent in kinds else None
    document = {
        "task": "statistics",
        "level": "mix",
        "framework": "pytorch",
        "dump_data_dir": None,
        "data": data,
    }
    for file, content in ((DUMP, document), (STACK, stack), (CONSTRUCT, construct)):
        write_file(place / file, json.dumps(content, indent=1).encode())


def _name(call: Recorded, counts: Counter[tuple[str, str]], kinds: dict[str, str]) -> str:
    phase = "backward" if call.place.phase == "backward" else "forward"
    if call.operator == "module":
        return _module_name(call.place.module, kinds, call.place)
    space, _, base = call.operator.partition("::")
    label = f"{'Distributed' if space == 'c10d' else space.capitalize()}.{base.partition('.')[0]}"
    number = counts[label, phase]
    counts[label, phase] += 1
    return f"{label}.{number}.{phase}"


def _module_name(path: str, kinds: dict[str, str], place: Place) -> str:
    inner = path.partition(".")[2] or path
    phase = "backward" if place.phase == "backward" else "forward"
    return f"Module.{inner}.{kinds[path]}.{phase}.{place.visit}"


def _frame(line: str) -> str:
    file, _, number = line.rpartition(":")
    return f"File {file}, line {number}, in unknown, \n "


def _entry(call: Recorded) -> dict[str, Any]:
    inputs = [_tensor(content) for content in call.inputs.values()]
    outputs = [_tensor(content) for content in call.outputs.values()]
    if call.place.phase == "backward":
        return {"input": inputs, "output": outputs}
    plain = {name: {"type": type(value).__name__, "value": value} for name, value in call.arguments.items()}
    return {"input_args": inputs, "input_kwargs": plain, "output": outputs}


def _tensor(content: Content) -> dict[str, Any]:
    s = content.statistics or Statistics(math.nan, math.nan, math.nan, math.nan)
    special = math.nan if s.nans else math.inf if s.infinities else None
    least, most, mean, norm = (special if special is not None else value for value in s[:4])
    return {
        "type": "torch.Tensor", "dtype": f"torch.{content.dtype}", "shape": list(content.shape),
        "Max": most, "Min": least, "Mean": mean, "Norm": norm, "requires_grad": False,
    }  # fmt: skip
