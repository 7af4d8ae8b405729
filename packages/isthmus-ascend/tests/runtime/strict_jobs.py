"""Jobs for the tests of strict mode, in processes of their own."""

import ctypes
import random
from typing import Any

import torch

from isthmus_ascend.generate.limits import LIMITS, dtypes_of, read_limits
from tests.runtime import opapi
from tests.runtime.cases import OUT, arguments
from tests.runtime.runtime import Function, acl, fails

PARAMETER, AICORE = 107000, 507015
CONTINUE, STOP = 0, 1


def refused(name: str, **given: Any) -> str:
    """Return the message of a call that phase one refuses, or an empty string."""
    opapi.start()
    with opapi.objects() as made:
        row = opapi.ROWS[name]
        status, executor = opapi.prepare(made, row, opapi.in_order(row, given))
        if status == 0:
            made.library.aclDestroyAclOpExecutor(executor)
            return ""
    assert status == 161002
    return opapi.message()


def known_names() -> dict[str, torch.dtype]:
    """Return the dtypes that tests can make tensors of, by the names of the table."""
    names = {str(dtype).removeprefix("torch."): dtype for dtype in opapi.DATA_TYPES}
    return {name.removesuffix("fnu"): dtype for name, dtype in names.items()}


def table(series: str) -> None:
    """Every row of the table refuses a call of its series, with its list and its source."""
    checked = 0
    known = known_names()
    for limit in read_limits(LIMITS.read_text()):
        if series not in limit.series or limit.function == "*":
            continue
        row = opapi.ROWS[limit.function]
        kinds = {name: kind for kind, name in row.parameters}
        if limit.kind == "products":
            given: Any = {}
            text = f"aclnn{row.name} is not supported on this product"
        elif kinds.get(limit.parameter) not in ("tensor", "tensors"):
            continue
        elif limit.kind == "dtypes":
            accepted = dtypes_of(limit.values)
            wrong = next(
                dtype for name, dtype in known.items() if name not in accepted and "float8" not in name
            )
            given = torch.zeros(2, 2).to(wrong)
            text = "not implemented for DT_"
        elif limit.kind == "filled":
            given, text = torch.zeros(0, 2), "is empty"
        else:
            given, text = torch.zeros([1] * (int(limit.values[1]) + 1)), "dimensions, expected"
        if isinstance(given, torch.Tensor):
            given = {limit.parameter: [given] if kinds[limit.parameter] == "tensors" else given}
        message = refused(limit.function, **given)
        assert "EZ1001: [PID: " in message, (limit, message)
        assert (
            text in message or "is not supported on this product" in message or "not implemented" in message
        )
        checked += 1
    print(checked)


def streams() -> None:
    """A stream that stops on failure leaves later operators out and fails each wait; others go on."""
    opapi.start()
    stopping, going, other = (acl.result_of("aclrtCreateStream") for _ in range(3))
    acl.aclrtSetStreamFailureMode(stopping, STOP)
    with fails(PARAMETER):
        acl.aclrtSetStreamFailureMode(going, 2)
    ran: list[str] = []
    nothing = Function(lambda _: None)

    def enqueue(stream: Any, name: str, message: bytes = b"") -> None:
        def work(_: Any) -> None:
            ran.append(name)
            if message:
                acl.raw.isthmus_ascend_fail(name.encode(), message)

        kept.append(function := Function(work))
        acl.isthmus_ascend_enqueue(stream, function, nothing, None)

    kept: list[Any] = []
    for stream, name in ((stopping, "first"), (going, "third")):
        enqueue(stream, name, b"no such row")
        enqueue(stream, f"after the {name}", b"a later failure")
    for _ in range(3):
        with fails(AICORE, "first: no such row"):
            acl.aclrtSynchronizeStream(stopping)
    with fails(AICORE, "third: no such row"):
        acl.aclrtSynchronizeStream(going)
    acl.aclrtSynchronizeStream(going)
    assert sorted(ran) == ["after the third", "first", "third"]
    # A stream that waits for what was left out fails too; one that waits for what ran before does not.
    event = acl.result_of("aclrtCreateEvent")
    acl.aclrtRecordEvent(event, stopping)
    acl.aclrtStreamWaitEvent(other, event)
    with fails(AICORE, "first: no such row"):
        acl.aclrtSynchronizeStream(other)
    acl.aclrtSynchronizeStream(other)
    with fails(AICORE, "first: no such row"):
        acl.aclrtSynchronizeEvent(event)
    for _ in range(2):
        with fails(AICORE, "first: no such row"):
            acl.aclrtSynchronizeDevice()
    acl.aclrtDeviceTaskAbort(0, 0)
    acl.aclrtSynchronizeDevice()
    enqueue(stopping, "again")
    acl.aclrtSynchronizeStream(stopping)
    assert ran[-1] == "again"


def _changed(value: Any, change: Any) -> Any:
    if isinstance(value, list):
        return [_changed(element, change) for element in value]
    return change(value) if isinstance(value, torch.Tensor) else value


def every_function(seed: int) -> None:
    """Call each function with empty, one-element, strided, overlapping and absurd arguments; print how many calls."""
    opapi.start()
    drawn, calls = random.Random(seed), 0
    shared = torch.zeros(1 << 12, dtype=torch.float64)
    changes = {
        "empty": lambda t: torch.zeros([0] * max(t.dim(), 1), dtype=t.dtype),
        "one element": lambda t: torch.zeros([1] * t.dim(), dtype=t.dtype),
        "strided": lambda t: torch.zeros(*t.shape, 2, dtype=t.dtype)[..., 1],
        "overlapping": lambda t: (
            shared.view(t.dtype)[: max(t.numel(), 1)].expand(2, -1)[0].as_strided(t.shape, [0] * t.dim())
        ),
        "as given": lambda t: t,
    }
    absurd = {
        "int": 1 << 62,
        "int32": -(1 << 31),
        "int8": -128,
        "double": float("nan"),
        "float": float("inf"),
    }
    for row in opapi.ROWS.values():
        try:
            given = [torch.zeros(3, 4) if value is OUT else value for value in arguments(row)]
        except Exception:  # no case of this row: null and zeros
            given = opapi.in_order(row, {})
        for name, change in changes.items():
            changed = [_changed(value, change) for value in given]
            if name == "as given":
                changed = [
                    absurd.get(kind, value) for (kind, _), value in zip(row.parameters, given, strict=True)
                ]
            elif drawn.random() < 0.3:
                changed[drawn.randrange(len(changed))] = (
                    None if row.parameters[0][0] == "tensor" else changed[0]
                )
            print(row.name, name, flush=True)
            with opapi.objects() as made:
                try:
                    status, executor = opapi.prepare(made, row, changed)
                except (ValueError, TypeError, KeyError, ctypes.ArgumentError, AttributeError):
                    continue  # objects that cannot be made
                if status == 0 and not row.name.startswith(
                    ("AlltoAll", "AllGather", "Matmul", "Quant", "Grouped")
                ):
                    getattr(made.library, f"aclnn{row.name}")(None, 0, executor, None)
                    acl.raw.aclrtSynchronizeDevice()
                calls += 1
    print(calls)
