"""``isthmus doctor``: what is here, what works, and what to do about the rest."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import isthmus

_GIB = 1 << 30
NO_TORCH = (
    "PyTorch is not installed; do `pip install torch==2.13.0`, then install Isthmus again with "
    "`pip install --no-build-isolation --force-reinstall --no-deps .`"
)


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
        subject: what was looked at.
        ok: whether it is as it should be.
        text: what was found; if it is not ok, with the remedy.
    """

    subject: str
    ok: bool
    text: str


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):  # kept out of this process
        return False


def examine() -> list[Finding]:
    """Look at everything; the order is that in which things depend on each other."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (_without_torch, _options, _drivers)
    if has_torch():
        checks = (
            _versions,
            _options,
            _registration,
            _libraries,
            _accelerator,
            _devices,
            _computation,
            _routes,
        )
    return [finding for check in checks for finding in _safely(check)]


def _safely(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    subject = check.__name__.strip("_")
    try:
        return list(check())
    except Exception as error:  # a defect of one check must not hide the others
        line = (str(error).strip().splitlines() or [""])[0]
        return [Finding(subject, False, f"{type(error).__name__}: {line}")]


def _without_torch() -> Iterator[Finding]:
    yield from _python()
    yield Finding("torch", False, NO_TORCH)


def _python() -> Iterator[Finding]:
    yield Finding("python", True, f"{platform.python_version()} ({platform.machine()}, {platform.system()})")
    yield Finding("isthmus", True, isthmus.__version__)


def _versions() -> Iterator[Finding]:
    import torch

    yield from _python()
    try:
        from isthmus import _build
    except ModuleNotFoundError:
        remedy = "do `pip install --no-build-isolation .`"
        yield Finding("torch", False, f"{torch.__version__}; the C++ core is not built: {remedy}")
        return
    fits = torch.__version__ == _build.TORCH_VERSION
    remedy = "" if fits else "; do `pip install --no-build-isolation --force-reinstall --no-deps isthmus`"
    yield Finding("torch", fits, f"{torch.__version__}, core built for {_build.TORCH_VERSION}{remedy}")


def _options() -> Iterator[Finding]:
    from isthmus import config

    for option in config.options():
        if option.problem:
            yield Finding("options", False, f"{option.variable}={option.value}: {option.problem}")
        elif option.is_set:
            yield Finding("options", True, f"{option.variable}={option.value}")
    for name in config.unknown():
        yield Finding(
            "options", False, f"{name} is set, but there is no such option; `isthmus env` lists them"
        )


def _registration() -> Iterator[Finding]:
    import torch  # noqa: F401 - the import is what registers

    status = isthmus.status()
    for place in status.searched:
        yield Finding("drivers", True, place)
    if not status.registered:
        yield Finding("chip", bool(_other_accelerator()), f"not registered: {status.reason}")
        return
    yield Finding(
        "chip", True, f"driver {status.driver}, {status.reason}; autoload took {status.seconds * 1e3:.0f} ms"
    )


def _drivers() -> Iterator[Finding]:
    """The drivers that are found, the asked or first one opened and initialised; needs no PyTorch."""
    from isthmus import drivers
    from isthmus.drivers.driver import Driver

    search = drivers.find(os.environ.get("ISTHMUS_DRIVER", ""))
    for place in search.searched:
        yield Finding("drivers", True, place)
    if not search.candidates:
        yield Finding("driver", False, search.problem)
        return
    first = search.candidates[0]
    driver = Driver(first.path, first.name, first.delegate)
    driver.initialize()
    count = driver.count()
    yield Finding("driver", count > 0, f"{first.name}: {count} devices, {first.path}")


def _libraries() -> Iterator[Finding]:
    if not isthmus.status().registered:
        return
    from isthmus.chip import registration

    for library in registration.libraries():
        yield Finding(
            "operators", True, f"library {library.name}: {len(library.operators)} kernels, {library.path}"
        )


def _other_accelerator() -> str:
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    return "" if device is None or device.type == "chip" else device.type


def _accelerator() -> Iterator[Finding]:
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None:
        yield Finding("accelerator", True, f"torch.accelerator is {device.type}")
        return
    yield Finding("accelerator", False, f"none is usable{_device_error()}")


def _device_error() -> str:
    if not isthmus.status().registered:
        return ": the chip is not registered, and there is no other"
    from isthmus import _C

    return f": {_C.device_error() or 'the driver has no device'}"


def _devices() -> Iterator[Finding]:
    import torch

    module: Any = torch.get_device_module()
    for index in range(torch.accelerator.device_count()):
        free, total = torch.accelerator.get_memory_info(index)
        name = module.get_device_name(index)
        yield Finding("device", True, f"{index}: {name}, {free / _GIB:.1f} of {total / _GIB:.1f} GiB free")


def _computation() -> Iterator[Finding]:
    """A product, its gradient and a sum, compared with the CPU."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(64, 64, generator=generator) for _ in range(2))
    expected, found = _product(first, second), _product(first.to(device), second.to(device))
    error = max((a - b.cpu()).abs().max().item() for a, b in zip(expected, found, strict=True))
    if error == 0:
        yield Finding(
            "computation", True, "64 x 64 product and its gradient: equal to the CPU's, bit for bit"
        )
    elif error < 1e-3:
        yield Finding(
            "computation", True, f"64 x 64 product and its gradient: within {error:.1e} of the CPU's"
        )
    else:
        yield Finding(
            "computation", False, f"64 x 64 product and its gradient are off by {error:.1e}: do not trust it"
        )


def _product(first: Any, second: Any) -> tuple[Any, Any]:
    leaf = first.detach().requires_grad_()
    product = leaf @ second
    product.relu().sum().backward()
    return product.detach(), leaf.grad


def _routes() -> Iterator[Finding]:
    if not isthmus.status().registered:
        return
    from isthmus import _C

    counts = Counter(route for route, _ in _C.routes().values())
    text = ", ".join(f"{count} {route}" for route, count in counts.most_common())
    yield Finding("routes", counts["none"] < sum(counts.values()), f"ATen overloads: {text}")
