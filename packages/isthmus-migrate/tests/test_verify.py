"""``isthmus migrate verify``: comparisons, and detection of a wrong conversion."""

import contextlib
import dataclasses
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.rules.data_parallel import DataParallel
from isthmus_migrate.verify import scratch, session
from isthmus_migrate.verify.compare import SPREAD, compare, compare_spread
from isthmus_migrate.verify.limits import Reference, relative_difference
from isthmus_migrate.verify.line_tracer import LineTracer
from isthmus_migrate.verify.record import Record, Request, read
from isthmus_migrate.verify.run import Run, Side
from tests.helpers import children

SIDE = Side("a side", Path("train.py"), (), Path(), Path(), shim=False)
TRAINING = """
import sys
import torch
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    x = torch.randn(4, 8).to(device) + torch.randn(4, 8, device="cuda")
    loss = model(x).square().mean()
    if "wrong" in sys.argv and x.device.type == "chip":
        loss = loss * 1.00001
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f} on {device}")
torch.cuda.synchronize()
"""


def run(output=(), errors=(), **facts):
    return Run(SIDE, 0, 1.0, [list(output)], list(errors), [Record(**facts)])


def verdicts(first, second, again=None):
    references = [Reference(again, 0)] if again else []
    return {each.subject: each for each in compare(first, second, references)}


# ---- what is compared ----------------------------------------------------------------------------------------
def test_relative_differences():
    assert (
        relative_difference(2.0, 2.0)
        == relative_difference(math.nan, math.nan)
        == relative_difference(math.inf, math.inf)
        == 0
    )
    assert relative_difference(1.0, math.nan) == relative_difference(math.inf, 1.0) == math.inf
    assert relative_difference(1.0, 1.1) == pytest.approx(0.1 / 1.1)


def test_losses_within_and_beyond_the_tolerance():
    near = verdicts(run(losses=[1.0, 2.0]), run(losses=[1.0, 2.0 + 1e-6]))["losses"]
    assert near.same and near.compared == 2 and 0 < near.difference <= 1e-6
    far = verdicts(run(losses=[1.0, 2.0]), run(losses=[1.0, 2.1]))["losses"]
    assert not far.same and far.detail == "from number 2: 2 against 2.1"
    missing = verdicts(run(losses=[1.0, 2.0]), run(losses=[1.0]))["losses"]
    assert not missing.same and missing.detail == "2 losses against 1"


def test_parameters_are_compared_by_their_largest_difference():
    weight = np.ones((2, 3), np.float32)
    other = weight.copy()
    other[1, 2] = 1.5
    assert verdicts(run(parameters={"w": weight}), run(parameters={"w": weight.copy()}))["parameters"].same
    found = verdicts(run(parameters={"w": weight, "v": weight}), run(parameters={"w": other, "v": weight}))
    assert not found["parameters"].same and found["parameters"].difference == pytest.approx(1 / 3)
    assert found["parameters"].detail == "w"
    for wrong in ({}, {"w": weight[:1]}, {"w": np.full((2, 3), np.nan, np.float32)}):
        assert not verdicts(run(parameters={"w": weight}), run(parameters=wrong))["parameters"].same


def test_random_numbers():
    found = verdicts(run(random={"torch": "a", "numpy": "b"}), run(random={"torch": "c", "numpy": "b"}))
    assert found["random numbers"].detail == "another number was drawn of torch"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("loss 0.5 on cuda:0", "loss 0.5 on chip:0", True),
        ("loss 0.1234", "loss 0.1235", True),  # rounding
        ("loss 0.1234", "loss 0.1244", False),
        ("epoch 1", "epoch 2", False),
        ("loss nan", "loss 0.5", False),
        ("loss 1e-3, lr 2", "loss 1e-3", False),
        ("max memory 3.5 MB", "max memory 0.0 MB", True),  # the machine's
        ("lr 1e-04", "lr 0.0001", True),
        ("Time 0.059 (0.012) Loss 2.5", "Time 0.068 (0.013) Loss 2.5", True),
        ("took 3.5 s, loss 1", "took 4 s, loss 2", False),
        ("loss 1.5, max mem: 3021", "loss 1.6, max mem: 0", False),
        ("12:30:05 loss 1.5, 31.2 images/s", "12:31:09 loss 1.5, 8.1 images/s", True),
        ("lr 0.001", "lr 0.002", False),  # one unit in the last digit, but no rounding
        ("trained the encoder", "skipped the encoder", False),
        ("Using GPU", "Using CPU", True),
        ("tensor(0.5, device='cuda:0')", "tensor(0.5)", True),
        ("loss 1", "loss 1\nsaved", False),
    ],
)
def test_printed_text(first, second, same):
    found = verdicts(run(["begin", first]), run(["begin", *second.splitlines()]))["printed text"]
    assert found.same is same


def test_nondeterministic_numbers_are_ignored():
    first, second, again = run(["loss 1 rate 2.5"]), run(["loss 1 rate 9.5"]), run(["loss 1 rate 3.5"])
    assert not verdicts(first, second)["printed text"].same
    found = verdicts(first, second, again)["printed text"]
    assert found.same and found.compared == 1
    assert found.left_out == ("1 number varying between two runs of the original (line 1)",)
    first, second, again = (run([f"rate {one}", f"rate {two}"]) for one, two in ((1, 2), (3, 4), (9, 2)))
    found = verdicts(first, second, again)["printed text"]
    assert found.same and found.compared == 0, "a rate that happens to be equal is one of the same kind"


def test_ranks_are_compared_one_by_one():
    first = Run(
        SIDE, 0, 1.0, [["loss 1"], ["loss 2"]], [], [Record(0, losses=[1.0]), Record(1, losses=[2.0])]
    )
    second = Run(
        SIDE, 0, 1.0, [["loss 1"], ["loss 3"]], [], [Record(0, losses=[1.0]), Record(1, losses=[3.0])]
    )
    found = verdicts(first, second)
    assert found["losses"].detail == "from number 1: 2 against 3, rank 1"
    assert found["printed text"].detail == "line 1, rank 1: 2 against 3"


def test_losses_of_ranks_are_compared_by_their_mean():
    def ranks(*losses):
        return Run(
            SIDE,
            0,
            1.0,
            [["loss 2.0"], []],
            [],
            [Record(rank, 2, losses=each) for rank, each in enumerate(losses)],
        )

    alone = run(["loss 2.00001"], losses=[2.0, 4.0], random={"torch": "a"})
    losses, parameters, printed = compare_spread(alone, ranks([1.0, 5.0], [3.0, 3.0 + 2e-6]))
    assert parameters.compared == 0, "there are none"
    assert (
        losses.same and losses.compared == 2 and 0 < losses.difference < SPREAD and losses.tolerance == SPREAD
    )
    assert printed.same and printed.compared == 1, "rank 0 prints"
    losses, *_ = compare_spread(alone, ranks([1.0, 5.0], [1.0, 5.0]))
    assert not losses.same and losses.detail == "from number 1: 2 against 1"
    losses, *_ = compare_spread(alone, ranks([1.0], [3.0]))
    assert losses.detail == "2 losses against 1"


def test_training_not_spread_over_ranks_is_not_proof():
    source = "loss = model(x)\nloss.backward()\n"
    result = convert_source(source, "train.py", rules=[DataParallel], options=["ddp"])
    reason = "train.py:2: backward() is not in a loop over a DataLoader of this file"
    assert (
        session._not_spread([result]) == f"--ddp did not convert the training: {reason}; verify without --ddp"
    )


@pytest.mark.parametrize(
    "last",
    [
        ["KeyError: 'LOCAL_RANK'"],
        ["ValueError: [...] rendezvous: environment variable RANK expected, but not set"],
        [
            '    rank = int(os.environ.get("RANK"))',
            "           ^^^",
            "TypeError: int() argument must be [...]",
        ],
        ["train.py: error: the following arguments are required: --local_rank"],
    ],
)
def test_a_script_for_a_launcher_is_recognised(last):
    failed = run(errors=["Traceback (most recent call last):", *last])._replace(status=1)
    assert failed.needs_ranks and failed.failure().endswith(
        "; a script that a launcher starts needs --nproc 2"
    )
    assert not failed._replace(side=dataclasses.replace(SIDE, ranks=2)).needs_ranks
    other = run(errors=["    RANK = 1", *["  more"] * 3, "ValueError: no"])._replace(status=1)
    assert not other.needs_ranks and other.failure().endswith("status 1: ValueError: no")


def test_a_record_is_read_as_it_was_written(tmp_path):
    values = {"Adam 0, parameter 0": np.arange(6, dtype=np.float32).reshape(2, 3)}
    Record(1, 3, losses=[0.5], fallbacks={"aten::x": 2}, parameters=values).write(tmp_path)
    Record(0, files=["b.py"]).write(tmp_path)  # a process that trained nothing
    done = run()._replace(processes=read(tmp_path))
    assert len(done.processes) == 2 and done.files == {"train.py", "b.py"}
    (found,) = done.records
    assert (found.rank, found.steps, found.losses, found.fallbacks) == (1, 3, [0.5], {"aten::x": 2})
    assert np.array_equal(found.parameters["Adam 0, parameter 0"], values["Adam 0, parameter 0"])
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in tmp_path.iterdir())
    request = Request(5, 7, True, 8, "/program", {"a.py": [1, 2]})
    request.write(tmp_path)
    assert Request.read(tmp_path) == request


# ---- lines and copies ----------------------------------------------------------------------------------------
def test_watched_lines_that_are_executed(tmp_path):
    path = str(tmp_path / "module.py")
    code = compile("def f(x):\n    if x:\n        return 1\n    return 2\n\nf(0)\n", path, "exec")
    lines, former = LineTracer({path: [2, 3, 4, 6]}), sys.gettrace()
    lines.start()
    try:
        exec(code, {})
    finally:
        sys.settrace(former)
    assert sorted(lines.executed[path]) == [2, 4, 6]


def test_a_copy_of_a_folder(tmp_path):
    program, copy = tmp_path / "program", tmp_path / "copy"
    for name in (
        "train.py",
        "data/small.bin",
        ".git/config",
        "__pycache__/x.pyc",
        "env/pyvenv.cfg",
        "env/lib.py",
    ):
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_text("x = 1\n")
    (program / "results" / "images").mkdir(parents=True)  # for what the program writes
    with (program / "data" / "large.bin").open("wb") as large:
        large.truncate(11 << 20)
    former = os.umask(0)
    try:
        scratch.copy(program, copy)
    finally:
        os.umask(former)
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        "data", "data/large.bin", "data/small.bin", "results", "results/images", "train.py",
    ]  # fmt: skip
    assert (copy / "data" / "large.bin").is_symlink() and not (copy / "data" / "small.bin").is_symlink()
    assert (copy / "train.py").stat().st_mode & 0o777 == 0o640 and (
        copy / "data"
    ).stat().st_mode & 0o777 == 0o750


def test_the_folder_of_a_script(tmp_path):
    script = tmp_path / "a" / "b" / "train.py"
    script.parent.mkdir(parents=True)
    script.touch()
    assert scratch.root_of(script) == script.parent
    assert scratch.root_of(script, tmp_path) == tmp_path
    with contextlib.chdir(tmp_path):
        assert scratch.root_of(script) == tmp_path
    with pytest.raises(scratch.ScratchError, match="does not contain"):
        scratch.root_of(script, tmp_path / "other")


def test_references_to_cuda_are_found_by_the_analysis(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nx = torch.ones(1)\nx = x.cuda()\ntorch.cuda.synchronize()\n"
    )
    (tmp_path / "broken.py").write_text("def (:\n")
    (found,) = scratch.references(tmp_path).values()
    assert sorted(found) == [3, 4]


# ---- runs ----------------------------------------------------------------------------------------------------
def verify(folder, *arguments):
    (folder / "train.py").write_text(TRAINING)
    removed = dict.fromkeys(name for name in os.environ if name.startswith(("ISTHMUS_", "PYTHON")))
    return children.command("migrate", "verify", *arguments, folder=folder, **removed, OMP_NUM_THREADS="1")


def test_the_converted_script_equals_the_original(tmp_path):
    (tmp_path / "unused.py").write_text(
        "import torch\ntorch.cuda.get_gencode_flags()\nx = torch.ones(1).cuda()\n"
    )
    done = verify(tmp_path, "train.py", "--steps", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same"] and found["problem"] == ""
    files, changes, left = found["conversion"].values()
    assert (files, left) == (1, []) and changes >= 4, "of the files that were run"
    counts = {each["subject"]: each["compared"] for each in found["comparisons"]}
    assert counts == {
        "losses": 3, "parameters": 4, "random numbers": 3, "printed text": 4, "saved files": 0,
    }  # fmt: skip
    assert all(each["difference"] == 0 for each in found["comparisons"])
    original, converted = found["runs"]
    assert original["device_peak_bytes"] is None and converted["device_peak_bytes"] > 0
    assert converted["fallbacks"] == {} and converted["optimizer_steps"] == [3]
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "unused.py"}, "the run left something"


@pytest.mark.full
def test_a_difference_under_the_shim_is_seen(tmp_path):
    done = verify(tmp_path, "train.py", "--shim", "--steps", "2", "--", "right")
    assert done.returncode == 0, done.stderr
    assert 'train.py:7: "cuda" or "cpu"' in done.stdout, "references that the shim answered"
    (tmp_path / "train.py").unlink()
    wrong = TRAINING.replace('x.device.type == "chip"', "torch.accelerator.is_available()")
    (tmp_path / "wrong.py").write_text(wrong)
    done = verify(tmp_path, "wrong.py", "--shim", "--steps", "2", "--", "wrong")
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "isthmus: the runs differ"
    assert "from number 1" in done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.py"], 2, "isthmus: absent.py: no such file"),
        ([], 2, "isthmus: missing argument: a script, or -m and a module"),
        (["-m", "package.train"], 2,
         "isthmus: -m package.train: no such module here; change to the folder that contains package"),
        (["train.py", "--epochs", "1"], 2,
         "isthmus: --epochs: unknown option; give options of the script after --: train.py -- --epochs"),
        (["train.py", "--folder", "/usr"], 2, "isthmus: --folder /usr: does not contain train.py"),
        (["train.ipynb"], 2,
         "isthmus: train.ipynb: not a Python script; give a training script (export a notebook first)"),
        (["train.py", "--device", "cpu:0"], 2,
         "isthmus: --device cpu:0: unknown device; give cpu, chip or another accelerator, or its index"),
        (["train.py", "--device", "chip:1"], 2,
         "isthmus: --device chip:1: a converted script uses the first device; omit the index, or give --shim"),
        (["train.py", "--shim", "--ddp"], 2,
         "isthmus: --ddp and --shim exclude each other; --shim does not convert"),
        (["train.py", "--target", "chip", "--device", "cpu"], 2,
         "isthmus: --target chip contradicts --device cpu; omit one of them"),
        (["train.py", "--target", "npu"], 2,
         "isthmus: --target npu: not available, this machine has chip; omit --target or use another machine"),
        (["train.py", "--shim", "--device", "xpu:1"], 2,
         "isthmus: --device xpu: not available, this machine has chip; omit --device or use another machine"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(tmp_path, arguments, code, message):
    (tmp_path / "train.ipynb").touch()
    done = verify(tmp_path, *arguments)
    assert (done.returncode, done.stderr.strip(), done.stdout) == (code, message, "")


@pytest.mark.full
def test_a_script_for_ranks_that_is_started_alone_is_one_line(tmp_path):
    (tmp_path / "ranks.py").write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\n")
    done = verify(tmp_path, "ranks.py")
    *told, line = done.stderr.splitlines()
    assert (done.returncode, told) == (1, ["isthmus: the original on the CPU ..."])
    assert done.stdout == f"verdict: FAILED: {line.removeprefix('isthmus: ')}\n"
    assert "RANK expected, but not set; a script that a launcher starts needs --nproc 2" in line


@pytest.mark.full
def test_a_failing_script_reports_why(tmp_path):
    (tmp_path / "fails.py").write_text("import torch\nraise ValueError('the user\\'s own')\n")
    done = verify(tmp_path, "fails.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "isthmus: the original on the CPU: ended with status 1: ValueError: the user's own"
    )
