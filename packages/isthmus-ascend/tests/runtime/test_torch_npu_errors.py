"""Failures of the reference runtime as the user of torch_npu sees them, and its sub-communicators."""

import signal
from pathlib import Path

import pytest

from tests.helpers.free_port import free_port
from tests.runtime.test_torch_npu import launch, needs_torch_npu, start

OPERATOR = """
import torch, torch_npu

x = torch.arange(3.0).npu()
for wrong, wait in ((7, torch.npu.synchronize), (-9, torch.npu.current_stream().synchronize)):
    y = x[torch.tensor([wrong]).npu()]
    try:
        wait()
    except RuntimeError as error:
        print(type(error).__name__, str(error))
try:
    x[torch.tensor([5]).npu()].cpu()
except RuntimeError as error:
    print(type(error).__name__, str(error))
print((x + 1).tolist())
"""

# Waits after a failure, on its stream and on another one; then with a device that was restarted.
STOPPED = """
import torch, torch_npu

x = torch.arange(3.0).npu()
y = x[torch.tensor([7]).npu()]
for _ in range(2):
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        print(str(error).splitlines()[-1])
for wait in (lambda: (x + 1).cpu(), torch.npu.current_stream().synchronize):
    try:
        wait()
    except RuntimeError as error:
        print("507015" if "507015" in str(error) else error)
with torch.npu.stream(torch.npu.Stream()):
    print((x + 3).tolist())
torch.npu.stop_device(0)
torch.npu.restart_device(0)
print((x + 1).tolist())
"""

# An operator that the runtime lacks, then right ones.
LASTING = """
import torch, torch_npu

x, y = torch.tensor([1, 2, -1], dtype=torch.int32).npu(), torch.full((2, 2), 3.0).npu()
torch.npu.synchronize()
try:
    torch_npu.npu_sub_sample(x, 3, 0.6)
    torch.npu.synchronize()
except RuntimeError as error:
    print(str(error).replace(chr(10), " "))
for _ in range(3):
    try:
        print((y @ y)[0, 0].item())
    except RuntimeError as error:
        print(str(error).replace(chr(10), " "))
"""

# Operators that the runtime refuses, through both interfaces, each followed by right ones on three streams.
REFUSED = """
import torch, torch_npu

x, y = torch.arange(3.0).npu(), torch.full((2, 2), 3.0).npu()
given = torch.tensor([1, 2, -1], dtype=torch.int32).npu()
one, other = torch.npu.Stream(), torch.npu.Stream()
missing = lambda: torch_npu.npu_sub_sample(given, 3, 0.6)
refused = lambda: torch_npu.npu_rms_norm(y, x)
finite = lambda: torch.isfinite(y)

def on_stream():
    with torch.npu.stream(one):
        missing()

for jit, wrong, wait in (
    (False, missing, torch.npu.synchronize),
    (False, lambda: missing()[0].cpu(), lambda: None),
    (False, lambda: [missing(), missing()], torch.npu.current_stream().synchronize),
    (False, on_stream, one.synchronize),
    (False, on_stream, torch.npu.synchronize),
    (False, refused, torch.npu.synchronize),
    (True, finite, torch.npu.synchronize),
    (True, lambda: bool(finite().all()), lambda: None),
    (True, lambda: x[given.long()], torch.npu.synchronize),
):
    torch.npu.set_compile_mode(jit_compile=jit)
    try:
        wrong()
        wait()
        print("no error")
    except RuntimeError as error:
        print("refused:", str(error))
    for stream in (torch.npu.default_stream(), one, other):
        with torch.npu.stream(stream):
            print("values", (y @ y).flatten().tolist())
"""

HANG = """
import ctypes
import torch, torch_npu

x = torch.ones(4).npu()
assert ctypes.CDLL("libascendcl.so").aclrtSetOpExecuteTimeOut(1) == 0  # torch_npu sets 547 s
try:
    for _ in range(100):
        (x + 1).cpu()
except RuntimeError as error:
    print(str(error))
"""

# Prints the exception of operators, or of collectives in a group of one rank.
CATCH = """
import os, sys
import torch, torch_npu
import torch.distributed as dist

x = torch.ones(4).npu()
try:
    if sys.argv[1:] == ["collectives"]:
        store = dist.HashStore()
        dist.init_process_group("hccl", store=store, rank=0, world_size=1)
        for _ in range(5):
            dist.all_reduce(x)
            x.cpu()
    else:
        for _ in range(100):
            x += 1
            torch.npu.current_stream().synchronize()
except RuntimeError as error:
    print(str(error), flush=True)
else:
    print("no failure", flush=True)
for _ in range(2 if sys.argv[1:] == ["collectives"] else 0):
    try:
        print("later", (torch.zeros(2).npu() + 1).tolist(), flush=True)
    except RuntimeError:
        print("later error", flush=True)
"""

# Rank 1 sends itself a signal before the second collective. The others print what they catch, and when.
LOST_RANK = """
import os, sys, time
import torch, torch_npu
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
x = torch.ones(1000).npu()
dist.all_reduce(x)
x.cpu()
if rank == 1:
    os.kill(os.getpid(), int(sys.argv[1]))
start = time.monotonic()
dist.all_reduce(x)
for wait in (x.cpu, torch.npu.synchronize):
    try:
        wait()
    except RuntimeError as error:
        print(f"{time.monotonic() - start:.1f} {error}", flush=True)
time.sleep(60)  # the watchdog of torch_npu ends the process
"""

SUB_COMMUNICATORS = """
import os, sys
import torch, torch_npu
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
x = torch.full((3,), rank + 1.0).npu()
dist.all_reduce(x)
swapped, own = dist.new_group([1, 0]), [dist.new_group([i]) for i in range(2)][rank]
gathered = [torch.zeros(1).npu() for _ in range(2)]
dist.all_gather(gathered, torch.tensor([float(rank)]).npu(), group=swapped)
dist.all_reduce(x, group=own)
received = torch.zeros(1).npu()
if rank == 0:
    dist.send(torch.tensor([5.0]).npu(), 1, group=swapped)
else:
    dist.recv(received, 0, group=swapped)
sys.stdout.write(f"{rank} {x.tolist()} {[part.item() for part in gathered]} {received.item()}\\n")  # at once
dist.barrier()
dist.destroy_process_group()
"""


@needs_torch_npu
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_a_stream_stays_stopped_after_a_failure(queue: str) -> None:
    ended = start("run", "-c", STOPPED, TASK_QUEUE_ENABLE=queue)
    first, *later = ended.stdout.splitlines()
    cause = "isthmus ascend: error 507015 in aclrtSynchronizeDeviceWithTimeout: aclnnIndex: index 7 is out of bounds"
    assert first.startswith(cause), ended.stderr
    assert later[0].startswith(cause)
    assert later[1:] == ["507015", "507015", "[3.0, 4.0, 5.0]", "[1.0, 2.0, 3.0]"]


@needs_torch_npu
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.full), "1"])
def test_an_error_in_the_task_queue_lasts(queue: str) -> None:
    ended = start("run", "-c", LASTING, TASK_QUEUE_ENABLE=queue)
    lines = ended.stdout.splitlines()
    named = "operator SubSample of the older interface is not implemented"
    assert named in lines[0], ended.stderr
    if queue == "1":
        assert (
            "The process exits for this inner error, and the current working operator name is SubSample"
            in lines[0]
        )
        assert all("507000" in line for line in lines[1:]) and len(lines) == 4
    else:  # refused where it was called; nothing ran
        assert lines[1:] == ["18.0"] * 3


@needs_torch_npu
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_a_failure_on_a_stream_is_raised_by_the_next_wait(queue: str) -> None:
    ended = start("run", "-c", OPERATOR, TASK_QUEUE_ENABLE=queue, ISTHMUS_ASCEND_STRICT="0")
    assert ended.stdout.count("RuntimeError") == 3, ended.stderr
    assert ended.stdout.count("error code is 507015") == 2
    for index in (7, -9):
        assert f"aclnnIndex: index {index} is out of bounds for dimension 0 with size 3\n" in ended.stdout
    # torch_npu's exception of a copy has the code only; it prints the message.
    assert "RuntimeError ACL stream synchronize failed, error code:507015\n" in ended.stdout
    assert "aclnnIndex: index 5 is out of bounds for dimension 0 with size 3" in ended.stderr
    assert ended.stdout.endswith("[1.0, 2.0, 3.0]\n")


@needs_torch_npu
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.full), "1", "2"])
def test_operators_after_a_refused_one_give_right_values(queue: str) -> None:
    ended = start("run", "-c", REFUSED, TASK_QUEUE_ENABLE=queue, ISTHMUS_ASCEND_STRICT="0")
    values = [line for line in ended.stdout.splitlines() if line.startswith("values")]
    assert values == ["values [18.0, 18.0, 18.0, 18.0]"] * 27, ended.stderr
    assert (ended.stdout.count("refused:"), ended.stdout.count("no error")) == (9, 0)
    for name in ("SubSample", "IsFinite", "Index"):
        assert (
            f"aclopCompileAndExecute: operator {name} of the older interface is not implemented"
            in ended.stdout
        )
    assert "aclnnRmsNorm: The size of tensor a (2) must match the size of tensor b (3)" in ended.stdout


@needs_torch_npu
def test_a_lost_device_is_raised() -> None:
    ended = start("fault", "--call", "100", "lost", "-c", CATCH)
    assert "error code is 507010" in ended.stdout, ended.stderr
    assert "The task scheduler loses the heartbeat" in ended.stdout
    assert "the device is lost" in ended.stdout


@needs_torch_npu
def test_a_hang_is_raised_after_the_limit_of_a_wait() -> None:
    limits = {"ACL_STREAM_TIMEOUT": "1000", "ACL_DEVICE_SYNC_TIMEOUT": "1"}
    ended = start("fault", "--call", "20", "hang", "-c", CATCH, **limits)
    assert "error code is 507046" in ended.stdout, ended.stderr
    assert "did not finish its work within the limit" in ended.stdout
    assert ended.returncode == 0


@needs_torch_npu
def test_a_hang_is_raised_after_the_limit_of_an_operator() -> None:
    ended = start("fault", "--call", "20", "hang", "-c", HANG)
    assert ended.stdout == "ACL stream synchronize failed, error code:507014\n", ended.stderr
    assert "an operator did not end within 1000 ms" in ended.stderr
    assert ended.returncode == 0


@needs_torch_npu
@pytest.mark.parametrize(
    ("function", "call"), [("", "1"), ("HcclCommInitRootInfoConfig", "1"), ("HcclAllReduce", "3")]
)
def test_a_link_that_is_down_is_raised(function: str, call: str) -> None:
    options = ["--function", function] if function else []
    ended = start("fault", "--call", call, *options, "link", "-c", CATCH, "collectives")
    message = f"error 13 in {function or 'HcclGetRootInfo'}: a link is down"
    assert message in ended.stdout, ended.stderr
    # An error in the thread of torch_npu's task queue ends it.
    later = "error" if function == "HcclAllReduce" else "[1.0, 1.0]"
    assert ended.stdout.endswith(f"later {later}\n" * 2)
    ended_at = "task queue ended at an error in HcclAllReduce: a link is down"
    assert (ended_at in ended.stderr) == (function == "HcclAllReduce")


@needs_torch_npu
def test_sub_communicators_ask_for_no_root_info(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(SUB_COMMUNICATORS)
    # The second call for a root info fails; the communicator of all ranks makes the first.
    fault = ["--call", "2", "--function", "HcclGetRootInfo", "link"]
    command = [*fault, "torchrun", "--standalone", "--nproc-per-node", "2", str(script)]
    # torch_npu does not use the rank table, as the functions that read it are absent.
    variables = {"ROOTINFO_SUBCOMM_ENABLE": "1", "RANK_TABLE_FILE": str(script)}
    ended = start("fault", *command, **variables)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        "0 [3.0, 3.0, 3.0] [0.0, 1.0] 0.0",
        "1 [3.0, 3.0, 3.0] [0.0, 1.0] 5.0",
    ]


@needs_torch_npu
@pytest.mark.parametrize(
    ("number", "limit", "code", "text"),
    [
        (
            signal.SIGKILL,
            60,
            507000,
            ") exited before operation 2 (all_reduce of 1000 float32 (sum)) completed",
        ),
        pytest.param(
            *(signal.SIGSTOP, 3, 107019, "timed out after 3000 ms: rank 1 (process "), marks=pytest.mark.full
        ),
    ],
)
def test_a_lost_rank_ends_the_others(number: signal.Signals, limit: int, code: int, text: str) -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
    shared["HCCL_EXEC_TIMEOUT"] = str(limit)
    command = ["run", "--devices", "3", "-c", LOST_RANK, str(int(number))]
    ranks = [launch(*command, RANK=str(i), LOCAL_RANK=str(i), **shared) for i in range(3)]
    try:
        ended = [ranks[i].communicate(timeout=200) for i in (0, 2)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for out, err in ended:
        first, second = (line for line in out.splitlines() if "error code" in line)
        assert "error code:507000" in first, out + err
        assert f"error code is {code}" in second
        assert max(float(line.partition(" ")[0]) for line in (first, second)) < limit + 10
        assert text in out
        assert "HCCL watchdog thread terminated with exception: isthmus ascend: error" in err
