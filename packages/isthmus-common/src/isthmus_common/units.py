"""Units of sizes and times: parsing and formatting."""

import re
from collections.abc import Iterable

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
GIB = UNITS["GiB"]
_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_size(value: str, *, decimal: bool = False) -> int | None:
    """Bytes of a size such as ``1.5GiB``; None for other text. With ``decimal`` also of ``5GB``, in any case."""
    units = {name.upper(): scale for name, scale in (UNITS | _DECIMAL).items()} if decimal else UNITS
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", value, re.ASCII)
    scale = units.get((found[2].upper() if decimal else found[2]) or "B") if found else None
    return int(float(found[1]) * scale) if found and scale else None


def unit_for(size: float, units: Iterable[str] = UNITS) -> tuple[str, int]:
    """Return name and bytes of the largest unit not larger than a size, or of the first one.

    Args:
        size: bytes.
        units: names, the smallest first.
    """
    first, *others = units
    name = next((name for name in reversed(others) if abs(size) >= UNITS[name]), first)
    return name, UNITS[name]


def format_size(size: float, units: Iterable[str] = UNITS) -> str:
    """Return a number of bytes with one of some units: ``"12 B"``, ``"1.5 GiB"``. Arguments as :func:`unit_for`."""
    name, scale = unit_for(size, units)
    return f"{size / scale:.{0 if name == 'B' else 1}f} {name}"


def format_step_time(seconds: float, *, exact: bool = False) -> str:
    """Return the time of a training step: ``"12.3 s"`` from 10 s, else ``"840 ms"``; with ``exact`` ``"8.41 ms"``."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:{'.3g' if exact and seconds < 0.1 else '.0f'}} ms"
