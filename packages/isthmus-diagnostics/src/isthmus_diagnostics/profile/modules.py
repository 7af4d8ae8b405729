"""Device time by module of the model, so that traces with different operators can be compared."""

from __future__ import annotations

import re
from collections import defaultdict

from isthmus_diagnostics.profile.host import Host
from isthmus_diagnostics.profile.operators import Total
from isthmus_diagnostics.profile.trace import Trace

_MODULE = re.compile(r"nn\.Module: (\w+)")


def module_totals(trace: Trace) -> dict[str, Total]:
    """Return totals of device work by the path of the module that it was launched in; none without ``with_stack``.

    Work of the backward pass belongs to the module whose forward operator has the same sequence number, with
    ``(backward)`` behind its path. A module's total does not include the modules in it.
    """
    host = Host(trace, [])
    forward = _forward_paths(host)
    totals: dict[str, Total] = defaultdict(Total)
    for work in trace.device:
        launch = host.launch(work)
        path = None if launch is None else _path(host, launch) or _backward_path(host, launch, forward)
        if path:
            totals[path].add_work(work)
            totals[path].kernels.add(work.name)
    return dict(totals)


def _path(host: Host, index: int) -> str:
    found = [_MODULE.match(host.events[outer].name) for outer in host.ancestors(index)]
    return "/".join(match[1] for match in reversed(found) if match)


def _forward_paths(host: Host) -> dict[object, str]:
    paths = {}
    for index, event in enumerate(host.events):
        sequence = event.args.get("Sequence number")
        if sequence is not None and not event.args.get("Fwd thread id"):
            path = _path(host, index)
            if path:
                paths[sequence] = path
    return paths


def _backward_path(host: Host, index: int, forward: dict[object, str]) -> str:
    for outer in host.ancestors(index):
        path = forward.get(host.events[outer].args.get("Sequence number"))
        if path:
            return f"{path} (backward)"
    return ""
