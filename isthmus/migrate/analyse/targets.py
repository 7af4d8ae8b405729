"""What a device does with each ATen operator; ``python -m`` this module prints it, for a process without PyTorch.

The chip is asked for its routes; any other device type is judged by what PyTorch's dispatcher has registered for it.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

FALLBACK, NONE = "fallback", "none"  # over copies on the CPU; a call raises
_ANY_DEVICE = re.compile(
    r"aten::(?!.*(_for_cpu|mkldnn))"
)  # not what composite operators call on the CPU only
_ENOUGH = 20  # kernels of its own that a device type has if its plugin is there


class Troubles(NamedTuple):
    """What a device does not run itself.

    Attributes:
        device: its name for people: ``"chip (driver host)"``.
        operators: ATen operator -> route, :data:`FALLBACK` or :data:`NONE`, and why.
    """

    device: str
    operators: dict[str, tuple[str, str]]


def troubles(target: str) -> Troubles:
    """The operators that a device lacks or runs by fallback.

    Raises:
        LookupError: PyTorch here knows no such device, or has no kernels for it.
    """
    if target == "chip":
        return _of_chip()
    found = dict(_of_dispatcher(target))
    own = sum(1 for route, _ in found.values() if route == "kernel")
    if own < _ENOUGH:
        raise LookupError(
            f"PyTorch here has no kernels for {target}; analyse where its build or plugin is installed"
        )
    return Troubles(target, {name: entry for name, entry in found.items() if entry[0] in {FALLBACK, NONE}})


def _of_chip() -> Troubles:
    import torch

    import isthmus

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
        raise LookupError(f"PyTorch here knows no device of type {target}; install its plugin") from None
    names = sorted(filter(_ANY_DEVICE.match, torch._C._dispatch_get_all_op_names()))
    outs = _outs(names)
    for name in names:
        route, why = _registered(name, key)
        if route == "structured":
            route, why = _registered(outs[name], key) if name in outs else (NONE, "no kernel")
        yield name, (NONE, "no kernel") if route == "structured" else (route, why)


def _registered(name: str, key: str) -> tuple[str, str]:
    """What the dispatcher would run: kernel, composite, structured (the ``out`` variant decides), or a trouble."""
    import torch

    lines = torch._C._dispatch_dump_table(name).splitlines()
    line = next((line for line in lines if line.startswith(f"{key}:")), "")
    return classify(line.partition(": ")[2])


def classify(registration: str) -> tuple[str, str]:
    """Route and reason from what the dispatcher's table says of an operator and a dispatch key.

    Vendors register their fallback to the CPU for single operators too, from a source named after it.
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
    """Operator -> the ``out`` variant with the same inputs, to which structured operators go."""
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
    """Print the troubles of a device as JSON; what is wrong goes to standard error, in one line."""
    try:
        found = troubles(target)
    except (LookupError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
