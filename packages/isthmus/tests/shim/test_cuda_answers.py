"""Every row and limit of docs/reference/cuda-answers.md, compared with what the shim answers."""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus import shim
from isthmus.shim import rules
from isthmus_common.patches import Scope

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "cuda-answers.md"
D = "cuda"
BUILT_WITH = torch.version.cuda  # None but in builds for CUDA


def rows() -> dict[str, str]:
    """The table: what the script asks, and the answer."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 2 and not cells[0].startswith("---") and cells[0] != "the script asks":
            found[cells[0]] = cells[1]
    return found


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def literals(text: str) -> list[Any]:
    """The values among the code of an answer."""
    found = []
    for each in code(text):
        try:
            found.append(ast.literal_eval(each))
        except (ValueError, SyntaxError):
            continue
    return found


def value(expression: str, **names: Any) -> Any:
    """Evaluate as a program does: PyTorch and Isthmus read other names."""
    return eval(expression, {"__name__": "a_program", "torch": torch, **names})


def first_literal(asks: str, answer: str) -> None:
    assert value(code(asks)[0]) == literals(answer)[0]


def availability(asks: str, answer: str) -> None:
    assert answer.startswith("True for scripts")
    for expression in code(asks):
        assert value(expression) is True, expression
    assert eval("torch.cuda.is_available()", {"__name__": "torch.nn.modules", "torch": torch}) is False


def capability(asks: str, answer: str) -> None:
    first_literal(asks, answer)
    assert literals(answer) == [rules.CAPABILITY_WITH_BFLOAT16, rules.CAPABILITY_WITHOUT]


def properties(asks: str, answer: str) -> None:
    found, theirs = torch.cuda.get_device_properties(0), torch.chip.get_device_properties(0)
    assert (found.name, found.total_memory) == (theirs.name, theirs.total_memory)
    assert found.multi_processor_count == theirs.multi_processor_count and found.uuid == theirs.uuid
    assert (found.major, found.minor) == torch.cuda.get_device_capability()
    assert found.warp_size == 32 and "`warp_size` 32" in answer


def architectures(asks: str, answer: str) -> None:
    assert [torch.cuda.get_arch_list(), torch.cuda.get_gencode_flags()] == literals(answer)


def dtypes(asks: str, answer: str) -> None:
    assert torch.cuda.is_bf16_supported() == torch.chip.is_bf16_supported()
    assert torch.cuda.is_tf32_supported() is False and answer.endswith("; False")


def memory(asks: str, answer: str) -> None:
    kept = torch.ones(1 << 18, device=D)
    assert torch.cuda.memory_allocated() == torch.chip.memory_allocated() >= kept.nbytes
    assert torch.cuda.mem_get_info()[1] == torch.chip.get_device_properties(0).total_memory
    flat, nested = torch.cuda.memory_stats(), torch.cuda.memory_stats_as_nested_dict()
    assert flat == torch.chip.memory_stats()
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]


def the_accelerators_own(asks: str, answer: str) -> None:
    for name in ("set_per_process_memory_fraction", "set_sync_debug_mode", "ipc_collect"):
        assert name in asks and hasattr(torch.chip, name)
    assert torch.cuda.ipc_collect is torch.chip.ipc_collect
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.chip.get_sync_debug_mode() == 1
    torch.cuda.set_sync_debug_mode(0)


def capturing(asks: str, answer: str) -> None:
    assert torch.cuda.is_current_stream_capturing() is False
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert torch.cuda.is_current_stream_capturing() is True
    assert answer.startswith("the accelerator's")


def no_ops(asks: str, answer: str) -> None:
    assert answer == "do nothing"
    for name in rules.NVTX_NO_OPS:
        assert callable(getattr(torch.cuda.nvtx, name))
    torch.cuda.nvtx.range_push("a")
    torch.cuda.nvtx.range_pop()
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    assert torch.cuda.cudart().cudaProfilerStart() == 0


def check_error(asks: str, answer: str) -> None:
    assert torch.cuda.check_error(2) is None and answer == "does nothing"


def flags(asks: str, answer: str) -> None:
    assert f"{torch.cuda.has_half}, {torch.cuda.has_magma}" == answer


def version(asks: str, answer: str) -> None:
    first_literal(asks, answer)
    assert vars(torch.version)["cuda"] == BUILT_WITH and answer.endswith("read what it was built with")


def names_of_devices(asks: str, answer: str) -> None:
    tensor = torch.ones(1, device=D)
    found = [value(expression, x=tensor) for expression in code(asks) if "print" not in expression]
    assert found == [True, "cuda", "cuda:0", "cuda:0"]
    assert literals(answer) == ["cuda", "cuda:0"] and answer.startswith("True, ")
    assert "device='cuda:0'" in repr(tensor)
    real = eval("x.is_cuda, x.device.type", {"__name__": "torch.nn", "x": tensor})
    assert real == (False, "chip")


def type_of_a_tensor(asks: str, answer: str) -> None:
    assert value("x.type()", x=torch.ones(1, device=D)) == literals(answer)[0]


def backend(asks: str, answer: str) -> None:
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert torch.distributed.get_backend() == literals(answer)[0]
    finally:
        torch.distributed.destroy_process_group()


def checkpoints(asks: str, answer: str) -> None:
    import io

    file = io.BytesIO()
    torch.save(torch.ones(1, device=D), file)
    assert b"cuda:0" in file.getvalue() and b"chip" not in file.getvalue()
    file.seek(0)
    assert torch.load(file, map_location="cuda:0").is_cuda
    assert "name CUDA's devices" in answer


def registrations(asks: str, answer: str) -> None:
    with torch.library._scoped_library("cuda_answers", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CUDA")
        assert torch.ops.cuda_answers.twice(torch.ones(1, device=D)).item() == 2


def determinism(asks: str, answer: str) -> None:
    (name,) = re.findall(r"such as `([^`]+)`", answer)
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=f"{re.escape(name)} does not have a deterministic implementation"):
        torch.rand(5, device=D).median(0)


CHECKS: dict[str, Callable[[str, str], None]] = {
    "torch.cuda.is_available()": availability,
    "torch.cuda.get_device_capability()": capability,
    "torch.cuda.get_device_properties()": properties,
    "torch.cuda.get_arch_list()": architectures,
    "torch.cuda.is_bf16_supported()": dtypes,
    "torch.cuda.mem_get_info()": memory,
    "torch.cuda.set_per_process_memory_fraction(f)": the_accelerators_own,
    "torch.cuda.is_current_stream_capturing()": capturing,
    "torch.cuda.get_allocator_backend()": first_literal,
    "torch.cuda.nccl.version()": first_literal,
    "torch.cuda.nvtx.*": no_ops,
    "torch.cuda.check_error()": check_error,
    "torch.cuda.has_half": flags,
    "torch.version.cuda": version,
    "x.is_cuda": names_of_devices,
    "x.type()": type_of_a_tensor,
    "torch.distributed.get_backend()": backend,
    "cuda:0": checkpoints,
    '"cuda"': registrations,
    "torch.use_deterministic_algorithms(True)": determinism,
}


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def test_every_row_has_a_check() -> None:
    assert [code(asks)[0] for asks in rows()] == list(CHECKS)


@pytest.mark.parametrize("asks", rows(), ids=lambda asks: code(asks)[0])
def test_a_row_says_what_the_code_does(cuda: Scope, asks: str) -> None:
    CHECKS[code(asks)[0]](asks, rows()[asks])


def limits() -> str:
    return " ".join(PAGE.read_text().partition("## Limits")[2].split())


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("pluggable allocators", "change_current_allocator"),
        ("cuBLAS", "current_blas_handle"),
        ("cuSOLVER", "current_solver_handle"),
        ("`list_gpu_processes`", "list_gpu_processes"),
    ],
)
def test_what_raises_says_why(cuda: Scope, said: str, name: str) -> None:
    assert said in limits()
    with pytest.raises(NotImplementedError, match=rf"^torch\.cuda\.{name} is not available on chip: \w+"):
        getattr(torch.cuda, name)()


@pytest.mark.parametrize("name", ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate"])
def test_telemetry_is_measured_or_refused(cuda: Scope, name: str) -> None:
    assert f"`{name}`" in limits()
    if hasattr(torch.chip, name):
        try:
            assert isinstance(getattr(torch.cuda, name)(), int)
        except NotImplementedError as error:
            assert re.search(r"^chip:0: the driver \w+ does not measure \w+; see", str(error))
    else:
        with pytest.raises(NotImplementedError, match=f"torch.cuda.{name} is not available on chip"):
            getattr(torch.cuda, name)()


def test_graphs_and_pools_are_the_accelerators(cuda: Scope) -> None:
    assert torch.cuda.CUDAGraph is torch.chip.Graph and torch.cuda.MemPool is torch.chip.MemPool
    assert torch.cuda.make_graphed_callables.__module__.startswith("isthmus.chip")


def test_a_device_without_an_index_is_the_current_one(cuda: Scope) -> None:
    assert '`"cuda"` without an index is the current device' in limits()
    with torch.cuda.device(1):
        assert torch.ones(1, device="cuda").get_device() == 1
        assert torch.ones(1, device="cuda:0").get_device() == 0


def test_without_an_accelerators_function_the_fraction_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.chip, "set_per_process_memory_fraction")
    with shim.enter(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_per_process_memory_fraction(0.5)
    (warning,) = [each for each in caught if "fraction" in str(each.message)]
    assert warning.filename == __file__ and "not enforced" in str(warning.message)
