"""Check the plugins that `import torch` loads (entry points of the group ``torch.backends``), each alone."""

import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from isthmus.options import InvalidOption
from isthmus_common import children
from isthmus_common.finding import Finding, describe, fail, invalid_option, ok, warning

_GROUP = "torch.backends"
_SUBJECT = "plugins"
_SLOW_S = 2.0
_ABSENT = "cannot open shared object file"
# Plugin whose libraries Isthmus has -> what to do where neither they nor the vendor's are found.
_REMEDIES = {
    "torch_npu": "run programs with `isthmus ascend run`; where no NPU is needed, set "
    "TORCH_DEVICE_BACKEND_AUTOLOAD=0, or uninstall torch_npu"
}
_UNNAMED = "privateuseone"  # PyTorch's name for the device that a plugin may register


def examine() -> Iterator[Finding]:
    """Check whether each plugin loads, its load time, and the device that it registers."""
    points = sorted(entry_points(group=_GROUP), key=lambda point: point.name)
    if not points:
        yield warning(_SUBJECT, "`import torch` loads no plugin: Isthmus is not installed", "install it")
        return
    outcomes = [_try(point) for point in points]
    for point, outcome in zip(points, outcomes, strict=True):
        yield from _judge(point, outcome)
    devices = [point.name for point, outcome in zip(points, outcomes, strict=True) if _device(outcome)]
    if len(devices) > 1:
        text = f"{' and '.join(devices)} each register a device; PyTorch allows only one"
        yield fail(_SUBJECT, text, "uninstall one of them, or disable Isthmus with ISTHMUS_DRIVER=none")


def _try(point: EntryPoint) -> children.Outcome:
    off = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return children.run(f"{__name__}:records", point.name, point.value, environment=off)


def records(name: str, value: str) -> Iterator[dict[str, Any]]:
    """Load the plugin in the child as PyTorch does, after PyTorch."""
    import torch

    yield {"torch": torch.__version__}
    start = time.perf_counter()
    try:
        EntryPoint(name, value, _GROUP).load()()
    except InvalidOption as error:
        yield {"invalid_option": str(error)}
        return
    except BaseException as error:  # a plugin may raise anything
        yield {"problem": describe(error)}
        return
    device = torch._C._get_privateuse1_backend_name()
    yield {"seconds": time.perf_counter() - start, "device": "" if device == _UNNAMED else device}


def _device(outcome: children.Outcome) -> str:
    return str(outcome.records[-1].get("device", "")) if outcome.records else ""


def _judge(point: EntryPoint, outcome: children.Outcome) -> Iterator[Finding]:
    if not outcome.records:
        return  # PyTorch itself cannot be imported, reported on its own line
    last = outcome.records[-1]
    name = f"{point.name} ({point.dist.name} {point.dist.version})" if point.dist else point.name
    if "invalid_option" in last:
        yield invalid_option(_SUBJECT, last["invalid_option"])
        return
    problem = last.get("problem") or outcome.problem
    if problem:
        package = point.dist.name if point.dist else "it"
        remedy = f"`pip install --force-reinstall {package}` or `pip uninstall {package}`"
        if _ABSENT in problem:
            remedy = _REMEDIES.get(point.name, remedy)
        yield fail(_SUBJECT, f"{name} breaks `import torch`: {problem}", remedy)
        return
    device = f"registers the device {last['device']!r}" if last["device"] else "registers no device"
    text = f"{name} loads in {last['seconds'] * 1e3:.0f} ms, {device}"
    if last["seconds"] < _SLOW_S:
        yield ok(_SUBJECT, text)
    else:
        yield warning(_SUBJECT, text, "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 where it is not needed")
