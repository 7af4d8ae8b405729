"""The options of comparing, debugging, watching and planning."""

from collections.abc import Mapping
from pathlib import Path

from isthmus_common.options import Option, Table, check_numbers


def _check_plan(given: Mapping[str, str]) -> dict[str, str]:
    if "swap" in given:
        raise ValueError("give --plan or --swap; a plan made with --offload uses the host too")
    if not Path(given["plan"]).is_file():
        raise ValueError("no such file; `isthmus plan recompute` writes a plan")
    return {}


def _forget_claim(given: Mapping[str, str]) -> dict[str, str]:
    """Watch this job even if a rank of another one starts it."""
    return {"ISTHMUS_HEALTH_CLAIM": ""}


# fmt: off
OPTIONS = (
    Option("plan", "path", "", "isthmus run", "plan of `isthmus plan` to apply to the model",
           start="isthmus_diagnostics.plan.session:start", moment="job", flag="FILE", prepare=_check_plan),
    Option("swap", "switch", False, "isthmus run",
           "keep activations of layers on the host as far as the device has no room for them",
           start="isthmus_diagnostics.plan.session:start", moment="job", flag=""),
    Option("plan_run", "text", "", "every Python of a job",
           "set by isthmus plan: folder for what it measures",
           start="isthmus_diagnostics.plan.session:start", moment="job"),
    Option("debug", "text", "", "isthmus_diagnostics.debug",
           "tools on from the start: compare:aten::*mm*,overflow:* (also capture, fallback, time)",
           start="isthmus_diagnostics.debug.environment:start", moment="import torch"),
    Option("debug_listen", "switch", False, "every Python of a job",
           "set by isthmus run: `isthmus debug` can attach",
           start="isthmus_diagnostics.debug.environment:listen", moment="job", run="1"),
    Option("debug_folder", "text", "isthmus-debug", "isthmus_diagnostics.debug", "where the tools write"),
    Option("dump", "choice", "", "isthmus run",
           "record every call for `isthmus accuracy`: statistics, hashes or tensors; empty: nothing",
           choices=("", "statistics", "hashes", "tensors"),
           start="isthmus_diagnostics.accuracy.environment:start", moment="job", flag="K"),
    Option("dump_dir", "path", "isthmus-dump", "isthmus run", "folder of the dump", flag="", needs="dump"),
    Option("dump_level", "choice", "both", "isthmus run",
           "calls to record: module, operator, both; all: also the operators of the optimizer's step",
           choices=("module", "operator", "both", "all"), flag="L", needs="dump"),
    Option("dump_steps", "text", "", "isthmus run", "steps to record; empty: all",
           check=check_numbers, flag="0,1,5-7", needs="dump"),
    Option("dump_ranks", "text", "", "isthmus run", "ranks that record; empty: all",
           check=check_numbers, flag="0,1,5-7", needs="dump"),
    Option("dump_scope", "text", "*", "isthmus run",
           "names of the modules or operators to record: '*.layers.0.*', aten::mm", flag="NAME", needs="dump"),
    Option("monitor", "path", "", "isthmus run",
           "folder for statistics of every 100th step, alerts, and monitor.json, which may be edited; empty: none",
           start="isthmus_diagnostics.accuracy.environment:start", moment="job", flag=""),
    Option("health", "switch", False, "isthmus run",
           "report hangs, slow ranks, loss spikes and wrong matmuls; save state before death",
           start="isthmus_diagnostics.health.environment:start", moment="job", flag="", prepare=_forget_claim),
    Option("health_dir", "path", "isthmus-health", "isthmus run",
           "folder of the health reports, which all ranks share", flag="", needs="health"),
    Option("health_claim", "text", "", "isthmus run",
           "set by a process that is watched: its id and ranks, by which those that it starts are not"),
    Option("health_timeout", "integer", 60, "isthmus run",
           "seconds in a collective until the hang report", least=1),
    Option("stream_check", "choice", "0", "isthmus_diagnostics.debug",
           "1: unordered use of memory by two streams raises; warn: it warns", choices=("0", "1", "warn"),
           start="isthmus_diagnostics.debug.environment:start", moment="import torch"),
    Option("debug_calls", "text", "", "isthmus_diagnostics.debug",
           "set by isthmus bisect: folder for the operators called",
           start="isthmus_diagnostics.debug.environment:start", moment="import torch"),
)
# fmt: on
TABLE = Table(OPTIONS, "Compare, watch and plan (isthmus-diagnostics)")
