"""The report of a run: functions called, refused and missing, with the lines of the program that called them."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

OUTCOMES = {
    "called": "called",
    "refused": "refused",
    "accepted": "accepted, though the product refuses them (ISTHMUS_ASCEND_STRICT=0)",
    "missing": "missing in the runtime",
}


@dataclass
class Function:
    """Calls of one function with one outcome: their number by call site, and the first message."""

    calls: Counter[str] = field(default_factory=Counter)
    message: str = ""


def read(path: Path) -> dict[str, dict[str, Function]]:
    """Return the functions by outcome and name.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a report.
    """
    found: dict[str, dict[str, Function]] = {outcome: {} for outcome in OUTCOMES}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
            function = found[entry["outcome"]].setdefault(entry["function"], Function())
            function.calls[entry["site"]] += entry["calls"]
            function.message = function.message or entry["message"]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{path}: line {number} is not a line of a report") from None
    return found


def lines(found: dict[str, dict[str, Function]], sites: int = 3) -> Iterable[str]:
    """Yield the lines to print; of each function the message, and so many call sites, the most frequent first."""
    for outcome, title in OUTCOMES.items():
        functions = found[outcome]
        if not functions and outcome == "accepted":
            continue
        total = sum(function.calls.total() for function in functions.values())
        yield f"{title}: {len(functions)} functions, {total} calls"
        for name, function in sorted(functions.items()):
            yield f"  {name}  {function.calls.total()}"
            if function.message:
                yield f"    {function.message.splitlines()[0]}"
            for site, count in function.calls.most_common(sites):
                if site:
                    yield f"    {site}  {count}"
            if len(function.calls) > sites:
                yield f"    and {len(function.calls) - sites} more call sites"
