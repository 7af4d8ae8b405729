"""Find how a device serves each ATen operator; ``python -m`` this module prints it, for a process without PyTorch.

The chip reports its routes; other device types are judged by the kernels registered in PyTorch's dispatcher.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

FALLBACK, NONE = "fallback", "none"  # over copies on the CPU; a call raises
_ANY_DEVICE = re.compile(
    r"aten::(?!.*(_for_cpu|mkldnn))"
)  # without operators that composites call on the CPU only
_ENOUGH = 20  # kernels of a device type if its plugin is installed


class Troubles(NamedTuple):
    """Operators that a device does not run itself.

    Attributes:
        device: its name in messages: ``"chip (driver host)"``.
        operators: ATen operator -> route, :data:`FALLBACK` or :data:`NONE`, and the reason.
    """

    device: str
    operators: dict[str, tuple[str, str]]


def troubles(target: str) -> Troubles:
    """Return the operators that a device lacks or runs by fallback.

    Raises:
        LookupError: this PyTorch does not have the device, or has no kernels for it.
    """
    if target == "chip":
        return _of_chip()
    found = dict(_of_dispatcher(target))
    own = sum(1 for route, _ in found.values() if route == "kernel")
    if own < _ENOUGH:
        raise LookupError(
            f"this PyTorch has no kernels for {target}; run the analysis with its build or plugin"
        )
    return Troubles(target, {name: entry for name, entry in found.items() if entry[0] in {FALLBACK, NONE}})


def _of_chip() -> Troubles:
    import torch

    try:
        import isthmus
    except ModuleNotFoundError:
        raise LookupError("the chip needs isthmus: pip install isthmus") from None
    status = isthmus.status()
    if not status.registered:
        raise LookupError(f"the chip is not registered: {status.reason}")
    chip: Any = torch.chip  # type: ignore[attr-defined]
    routes = chip.routes().items()
    return Troubles(
        f"chip (driver {status.driver})",
        {name: entry for name, entry in routes if entry[0] in {FALLBACK, NONE}},
    )


def _of_dispatcher(target: str) -> Iterator[tuple[str, tuple[str, str]]]:
    import torch

    try:
        key = torch._C._dispatch_key_for_device(target)
    except RuntimeError:
        raise LookupError(f"this PyTorch has no device of type {target}; install its plugin") from None
    names = sorted(filter(_ANY_DEVICE.match, torch._C._dispatch_get_all_op_names()))
    outs = _outs(names)
    for name in names:
        route, why = _dispatch_route(name, key)
        if route == "structured":
            route, why = _dispatch_route(outs[name], key) if name in outs else (NONE, "no kernel")
        yield name, (NONE, "no kernel") if route == "structured" else (route, why)


def _dispatch_route(name: str, key: str) -> tuple[str, str]:
    """Return the dispatcher's route: kernel, composite, structured (the ``out`` variant decides), or a trouble."""
    import torch

    lines = torch._C._dispatch_dump_table(name).splitlines()
    line = next((line for line in lines if line.startswith(f"{key}:")), "")
    return classify(line.partition(": ")[2])


def classify(registration: str) -> tuple[str, str]:
    """Return route and reason from the dispatcher's registration of an operator for a dispatch key.

    Vendors also register CPU fallbacks for single operators, from a source file named after it.
    """
    if not registration or registration.startswith("fallthrough"):
        return NONE, "no kernel"
    source = registration.partition(" [")[0].rpartition("/")[2]
    if "[backend fallback]" in registration or "fallback" in source.lower():
        return FALLBACK, "CPU fallback"
    if "CompositeExplicitAutogradNonFunctional" in source:
        return "structured", ""
    return ("kernel" if "[kernel]" in registration else "composite"), ""


def _outs(names: list[str]) -> dict[str, str]:
    """Return for each operator its ``out`` variant, which serves structured operators."""
    import torch

    inputs: dict[tuple[str, str], str] = {}
    functional: dict[str, tuple[str, str]] = {}
    for name in names:
        packet, _, overload = name.partition(".")
        schema = torch._C._get_schema(packet, overload)
        given = ", ".join(f"{each.name}: {each.type}" for each in schema.arguments if not each.is_out)
        if any(each.is_out for each in schema.arguments):
            inputs[packet, given] = name
        else:
            functional[name] = packet, given
    return {name: inputs[key] for name, key in functional.items() if key in inputs}


def main(target: str) -> int:
    """Print the troubles of a device as JSON, and errors to standard error in one line."""
    try:
        found = troubles(target)
    except (LookupError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
