"""Record the fixtures of the rules of `isthmus profile advise`: real runs of the scripts beside this file.

    python packages/isthmus-diagnostics/tests/profile/profile_rules/record.py [RULE ...]

Each script has a loop `before`, whose slow line is marked, and a corrected one, `after`; `done` ends a step.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS = 5  # one is skipped, one warms the profiler up, three are recorded
_DROPPED = (
    "Concrete Inputs",
    "Input Strides",
    "Record function id",
    "Ev Idx",
    "Sequence number",
    "Fwd thread id",
)
_COMPILER, _DETAIL = "_dynamo/convert_frame.py", 100  # microseconds
_UNREAD = ("Python parent id", "Python id", "Python module id", "Addr", "finished", "Python thread")


def main(before: Callable[[Any], None], after: Callable[[Any], None], ranks: int = 1) -> None:
    """Record the loop that the first argument names, on this rank."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    name, path = sys.argv[1:]
    torch.manual_seed(0)
    if ranks > 1:
        torch.chip.set_device(int(os.environ["RANK"]))
        dist.init_process_group()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
        schedule=schedule(wait=1, warmup=1, active=STEPS - 2, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
        record_shapes=True,
        with_stack=True,
    ) as profiler:
        {"before": before, "after": after}[name](profiler.step)
    if ranks > 1:
        dist.destroy_process_group()


def record(rule: str, name: str) -> None:
    """Run a script and write its traces, without what no rule reads."""
    script = HERE / f"{rule}.py"
    ranks = 2 if "ranks=2" in script.read_text() else 1
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            more = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "ISTHMUS_HOST_DEVICES": str(ranks)}
            command = [sys.executable, script, name, f"{folder}/{rank}"]
            children.append(subprocess.Popen(command, env={**os.environ, **more, "OMP_NUM_THREADS": "1"}))
        statuses = [child.wait() for child in children]
        if any(statuses):
            sys.exit(f"{script} {name} failed")
        for rank in range(ranks):
            (HERE / rule / name).mkdir(parents=True, exist_ok=True)
            trace = json.loads(Path(f"{folder}/{rank}").read_bytes())
            text = json.dumps(_reduced(trace), separators=(",", ":"))
            (HERE / rule / name / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _reduced(trace: dict[str, Any]) -> dict[str, Any]:
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    compilers = [event for event in events if _COMPILER in event["name"]]
    events = [event for event in events if not _is_detail(event, compilers)]
    start = min(event["ts"] for event in events)
    for event in events:
        event["name"] = re.sub(r"/\S*?/(?=isthmus/|site-packages/)", "", event["name"])
        event["ts"] = round(event["ts"] - start, 3)
        for argument in _DROPPED + _UNREAD:
            event.get("args", {}).pop(argument, None)
    return {"distributedInfo": trace.get("distributedInfo", {}), "traceEvents": events}


def _is_detail(event: dict[str, Any], compilers: list[dict[str, Any]]) -> bool:
    """Return whether an event is a short frame inside the compiler, which has a hundred thousand of them."""
    if event.get("cat") != "python_function" or event["dur"] >= _DETAIL:
        return False
    start, end = event["ts"], event["ts"] + event["dur"]
    return any(each["ts"] < start and end < each["ts"] + each["dur"] for each in compilers)


if __name__ == "__main__":
    for rule in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem != "record"):
        for name in ("before", "after"):
            record(rule, name)
