"""Check the chip: the core, the driver, its devices, a small computation, the routes.

All checks run in a child process, because a driver under development may crash or hang.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import isthmus
from isthmus import binaries, options
from isthmus.options import InvalidOption
from isthmus_common import children, patches
from isthmus_common.finding import (
    Check,
    Finding,
    State,
    describe,
    fail,
    invalid_option,
    ok,
    run_check,
    warning,
)
from isthmus_common.text import NO_TORCH
from isthmus_common.units import GIB

_FIX = "fix the errors reported here and above, or select another driver with ISTHMUS_DRIVER"


def with_torch() -> Iterator[Finding]:
    """Check the chip with PyTorch."""
    yield from _in_child(f"{__name__}:torch_records")


def without_torch() -> Iterator[Finding]:
    """Report that PyTorch is missing, and check the driver without it."""
    text, _, remedy = NO_TORCH.partition("; ")
    yield fail("torch", text, remedy)
    yield from _in_child(f"{__name__}:driver_records")


def _in_child(target: str) -> Iterator[Finding]:
    outcome = children.run(target)
    checking = "start-up"
    for record in outcome.records:
        checking = record.get("checking", checking)
        if "finding" in record:
            subject, state, text, remedy = record["finding"]
            yield Finding(subject, State(state), text, remedy)
    if outcome.problem:
        remedy = f"{_FIX}; otherwise run the failing call under a debugger"
        yield fail("chip", f"while checking {checking}: {outcome.problem}", remedy)


def torch_records() -> Iterator[dict[str, Any]]:
    """Yield in the child the findings with PyTorch, announcing each check before it starts."""
    yield {"checking": "the import of torch"}
    try:
        import torch  # noqa: F401 - the import is what registers
    except BaseException as error:  # a plugin may raise anything
        yield {"finding": _import_error(error)}
        return
    for subject, check in _CHECKS.items():
        yield from _announce(subject, check)


def driver_records() -> Iterator[dict[str, Any]]:
    """Yield in the child the findings that do not need PyTorch."""
    yield from _announce("drivers", _unready_drivers)
    yield from _announce("driver", _driver)


def _announce(subject: str, check: Check) -> Iterator[dict[str, Any]]:
    yield {"checking": subject}
    for finding in run_check(check, subject, _FIX):
        yield {"finding": finding}


def _import_error(error: BaseException) -> Finding:
    if isinstance(error, InvalidOption):
        return invalid_option("torch", str(error))
    remedy = "reinstall it: `pip install --force-reinstall 'torch>=2.13,<2.16'`"
    if "backend extension" in str(error):
        remedy = "fix or uninstall that plugin; until then, set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    return fail("torch", f"`import torch` fails: {describe(error)}", remedy)


def _find_core() -> binaries.Binaries | binaries.NotBuilt:
    import torch

    try:
        return binaries.find(torch.__version__)
    except binaries.NotBuilt as error:
        return error


def _core() -> Iterator[Finding]:
    import torch

    found = _find_core()
    if isinstance(found, binaries.NotBuilt):
        yield fail("torch", f"{torch.__version__}; {found.problem}: the chip is off", found.remedy)
        return
    folder = found.folder.relative_to(Path(isthmus.__path__[0]))
    yield ok(
        "torch", f"{torch.__version__}; core {folder}, built with {found.torch}; kernels {found.kernels}"
    )


def _registration() -> Iterator[Finding]:
    status = isthmus.status()
    for place in status.searched:
        yield ok("drivers", place)
    if status.registered:
        milliseconds = status.seconds * 1e3
        text = f"driver {status.driver}, {status.reason}; autoload took {milliseconds:.0f} ms"
        yield ok("chip", text)
        for each in patches.skipped():
            yield warning(
                "torch", f"off: {each.loss}: {each.reason}", "use a version of PyTorch that is tested"
            )
    elif other := _other_accelerator():
        yield ok("chip", f"not registered: {status.reason}; torch.accelerator is {other}")
    elif not isinstance(_find_core(), binaries.NotBuilt):  # the core's line has said so
        reason, _, remedy = status.reason.partition("; ")
        yield fail("chip", f"not registered: {reason}", remedy or "fix the cause reported in this line")


def _interface() -> Iterator[Finding]:
    """Check the opened driver's interface version; the loader rejects another major version."""
    if not isthmus.status().registered:
        return
    from isthmus import _C

    driver = _C.driver()
    yield _interface_finding(f"{driver['name']} ({driver['description']})", driver["version"])


def _interface_finding(name: str, version: str) -> Finding:
    header = (Path(isthmus.include_path()) / "driver.h").read_text(encoding="utf-8")
    ours = ".".join(re.findall(r"#define ISTHMUS_DRIVER_VERSION_(?:MAJOR|MINOR) (\d+)", header))
    text = f"{name} implements version {version}, Isthmus {ours}"
    return ok("interface", text if version == ours else f"{text}; features of the newer version are not used")


def _unready_drivers() -> Iterator[Finding]:
    from isthmus import drivers

    for problem in drivers.unready_drivers():
        text, _, remedy = problem.partition("; ")
        yield warning("drivers", text, remedy)


def _driver() -> Iterator[Finding]:
    """List the drivers; open and initialise the selected or first one."""
    from isthmus import drivers
    from isthmus.drivers.driver import Driver

    search = drivers.find(options.text("driver"))
    for place in search.searched:
        yield ok("drivers", place)
    if not search.candidates:
        text, _, remedy = search.problem.partition("; ")
        yield fail("driver", text, remedy or "fix the cause reported in this line")
        return
    first = search.candidates[0]
    driver = Driver(first.path, first.name, first.delegate)
    version = driver.table.version
    name = f"{first.name} ({driver.table.description.decode(errors='replace')})"
    yield _interface_finding(name, f"{version >> 16}.{version & 0xFFFF}")
    driver.initialize()
    count = driver.count()
    text = f"{first.name}: {count} devices, {first.path}"
    yield (
        ok("driver", text) if count else fail("driver", text, "check the devices with the vendor's own tool")
    )


def _libraries() -> Iterator[Finding]:
    if not isthmus.status().registered:
        return
    from isthmus.chip import registration

    for library in registration.libraries():
        yield ok("operators", f"library {library.name}: {len(library.operators)} kernels, {library.path}")


def _other_accelerator() -> str:
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    return "" if device is None or device.type == "chip" else device.type


def _accelerator() -> Iterator[Finding]:
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is not None:
        yield ok("accelerator", f"torch.accelerator is {device.type}")
    elif isthmus.status().registered:
        from isthmus import _C

        reason, _, remedy = (_C.device_error() or "the driver has no device").partition("; ")
        asked = "check the devices with the vendor's own tool; for the host chip set ISTHMUS_HOST_DEVICES"
        yield fail("accelerator", f"none available: {reason}", remedy or asked)
    else:
        yield fail(
            "accelerator",
            "none available: the chip is not registered, and PyTorch has no other accelerator",
            "fix the cause reported above",
        )


def _devices() -> Iterator[Finding]:
    import torch

    module: Any = torch.get_device_module()
    for index in range(torch.accelerator.device_count()):
        free, total = torch.accelerator.get_memory_info(index)
        name = module.get_device_name(index)
        yield ok("device", f"{index}: {name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free")


def _computation() -> Iterator[Finding]:
    """Compute a product, its gradient and a sum, and compare with the CPU."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(64, 64, generator=generator) for _ in range(2))
    what = "64 x 64 product and its gradient"
    expected = _product(first, second)
    try:
        found = _product(first.to(device), second.to(device))
    except NotImplementedError as missing:
        remedy = (
            "write this kernel, or let the CPU compute what has none: `fallback = true` in the driver.toml"
        )
        yield fail("computation", f"{what}: {describe(missing)}", remedy)
        return
    error = max((a - b.cpu()).abs().max().item() for a, b in zip(expected, found, strict=True))
    if error == 0:
        yield ok("computation", f"{what}: equal to the CPU's, bit for bit")
    elif error < 1e-3:
        yield ok("computation", f"{what}: within {error:.1e} of the CPU's")
    else:
        remedy = "results of this chip are wrong; find the operators with `isthmus conform run`"
        yield fail("computation", f"{what}: error {error:.1e}", remedy)


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
    text = "ATen overloads: " + ", ".join(f"{count} {route}" for route, count in counts.most_common())
    if counts["none"] < sum(counts.values()):
        yield ok("routes", text)
    else:
        yield fail("routes", text, "declare a delegate or an operator library in driver.toml")


_CHECKS: dict[str, Check] = {
    "drivers": _unready_drivers,
    "core": _core,
    "registration": _registration,
    "interface": _interface,
    "libraries": _libraries,
    "accelerator": _accelerator,
    "devices": _devices,
    "computation": _computation,
    "routes": _routes,
}
