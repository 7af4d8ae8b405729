"""msprobe on the faults of one rank: ``python -m tests.accuracy.msprobe_jobs FOLDER`` writes FOLDER/found.json.

It is run by a Python that has mindstudio-probe. A job is exact if the first API or module that the comparison of
tensors does not pass is one of the operators of the fault, in its module.
"""

import contextlib
import csv
import json
import os
import sys
from pathlib import Path

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.compare.pt_compare import pt_compare

from tests.accuracy import llama
from tests.accuracy.faults import FAULTS, planted, sites

# Names of APIs, by the operators that they run.
SAME = {
    "linear": "t mm", "matmul": "bmm", "cross_entropy": "nll_loss_forward _log_softmax", "softmax": "_softmax",
    "square": "pow", "float": "_to_copy", "bfloat16": "_to_copy", "flatten": "view", "unflatten": "view",
    "mul": "AdamW", "add": "AdamW", "lerp": "AdamW", "addcmul": "AdamW", "addcdiv": "AdamW",  # with its arguments
    "truediv": "div", "silu": "silu silu_backward", "dropout": "native_dropout", "norm": "linalg_vector_norm",
}  # fmt: skip


def dump(folder: Path, fault) -> None:
    debugger = PrecisionDebugger(task="tensor", level="mix", dump_path=str(folder))

    def start(model):
        debugger.start(model=model)

    with contextlib.nullcontext([]) if fault is None else planted(fault) as hooks:
        llama.train(2, hooks=[*hooks, start])
    debugger.stop()
    debugger.step()


def place(folder: Path) -> Path:
    return next(folder.rglob("dump.json")).parent


def first(right: Path, wrong: Path, out: Path) -> str:
    """Return the first name that is not passed."""
    paths = {"npu_path": str(wrong / "dump.json"), "bench_path": str(right / "dump.json")}
    pt_compare(paths | {"stack_path": str(wrong / "stack.json"), "is_print_compare_log": False}, str(out))
    (table,) = out.glob("*.csv")
    with table.open() as file:
        for row in csv.DictReader(file):
            if row.get("Result", row.get("Accuracy Reached or Not", "")) not in ("pass", "Yes", "", "N/A"):
                return row.get("NPU Name") or row.get("Target Name") or row["Bench Name"]
    return ""


def verdict(name: str, fault) -> str:
    if not name:
        return "silent"
    kind, api = name.split(".")[:2]
    base = api.strip("_").removeprefix("i")
    operators = {base, *SAME.get(base, "").split()}
    module = (
        "" if fault.module is None else fault.module.format(n=sites()[fault.name]).rpartition("Llama.")[2]
    )
    if kind == "Module":
        return "exact" if f".{module}." in name and fault.module else "elsewhere"
    return "exact" if operators & set(fault.calls.split()) else "elsewhere"


def apart(function) -> None:
    """Run in a child: a process has one debugger."""
    child = os.fork()
    if child == 0:
        try:
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                function()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    apart(lambda: dump(folder / "right", None))
    found = {}
    for fault in FAULTS:
        result = folder / f"{fault.name}.txt"

        def judge(fault=fault, result=result):
            dump(folder / fault.name, fault)
            out = folder / f"{fault.name}-out"
            out.mkdir()
            result.write_text(first(place(folder / "right"), place(folder / fault.name), out))

        apart(judge)
        if result.exists():
            found[fault.name] = verdict(result.read_text(), fault), result.read_text()
        else:
            found[fault.name] = "failed", ""
    (folder / "found.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
