"""Differences between versions of PyTorch stand in two files, and each patch is still needed."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._autograd import DeviceType
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.profiler import ProfilerActivity, profile

from isthmus.chip import distributed, sharing
from isthmus.chip.compile import compile as chip_compile
from isthmus.chip.patches import (
    cross_entropy,
    data_parallel,
    dlpack,
    dtensor_random,
    flex_attention,
    graph_capture,
    higher_order,
    lazy_modules,
    opcheck,
    profiler_stacks,
)
from isthmus.chip.torch_version import CAPTURE_IS_CHECKED_ON_CUDA_ALONE
from tests.helpers.children import run_fresh
from tools.repository import CORE, ROOT

HEADER = CORE / "csrc" / "core" / "torch_version.h"
MODULE = CORE / "src" / "isthmus" / "chip" / "torch_version.py"
ENTRY = re.compile(r"^(//|#) 2\.\d+: (.|\n\1)*? Goes with 2\.\d+[.,]", re.MULTILINE)
COMPARISONS = (
    r"TORCH_VERSION_(MAJOR|MINOR|PATCH)|TORCH_FEATURE_VERSION",
    r"Version\(torch\.|parse\(torch\.__version__|TorchVersion",
    r"torch\.__version__\S* *([<>]|[!=]=)|torch\.__version__\.(split|startswith)",
)


def test_versions_are_compared_in_two_files() -> None:
    sources = [
        path
        for package in ("isthmus", "isthmus-ascend", "isthmus-diagnostics", "isthmus-formats")
        for pattern in ("csrc/**/*.[ch]*", "src/**/*.py")
        for path in (ROOT / "packages" / package).glob(pattern)
        if path not in (HEADER, MODULE)
    ]
    assert len(sources) > 500
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        for line in path.read_text().splitlines()
        if any(re.search(pattern, line) for pattern in COMPARISONS)
    ]
    assert not found


def test_each_entry_names_its_version_and_its_end() -> None:
    for path, mark in ((HEADER, r"^#define \w+\(_\) _|^#define \w+ \S"), (MODULE, r"^[A-Z]\w+\b.* = ")):
        text = path.read_text()
        names = len(re.findall(mark, text, flags=re.MULTILINE))
        assert names and names == len(ENTRY.findall(text)), path.name


def test_everything_is_on_with_this_pytorch() -> None:
    """No patch is left out: those at `import torch`, those of modules that are imported later, and the shim's."""
    code = """
        import torch, torch._dynamo, torch._inductor.compile_fx, torch.export, torch.distributed.rpc
        import torch.distributed.tensor.experimental._attention, torch.testing._internal.optests
        import torch.nn.attention.flex_attention, torch.utils.cpp_extension
        import torch.distributed.elastic.agent.server.api
        import torch.distributed.elastic.rendezvous.dynamic_rendezvous
        import torch.distributed.elastic.rendezvous.static_tcp_rendezvous
        from isthmus import shim
        from isthmus_common import patches
        with shim.enter():
            print(len(patches.active()), patches.skipped())
    """
    printed = run_fresh(code).stdout.split(maxsplit=1)
    assert int(printed[0]) > 200 and printed[1].strip() == "[]"


def test_groups_have_a_default_backend_and_warn_of_nothing(tmp_path: Path) -> None:
    code = f"""
        import torch, torch.distributed as dist
        dist.init_process_group(
            "cpu:gloo,chip:chip", init_method="file://{tmp_path}/store", rank=0, world_size=1
        )
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("chip"))
        model(torch.ones(1, 2, device="chip")).sum().backward()
        for device in ("cpu", "chip"):
            dist.all_reduce(torch.ones(2, device=device))
        dist.destroy_process_group()
    """
    ended = run_fresh(code)
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr


# ---- each patch: what fails without it


def _dlpack_has_no_device() -> None:
    with pytest.raises(ValueError, match="Unknown device type chip"):
        torch.ones(1, device="chip").__dlpack_device__()


def _lazy_parameters_do_not_move() -> None:
    with pytest.raises(ValueError, match="uninitialized"):
        nn.parameter.UninitializedParameter().chip()


def _flex_attention_refuses_the_chip() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.ones(1, 1, 16, 16, device="chip")
    with pytest.raises((ValueError, NotImplementedError), match="FlexAttention is only supported on"):
        flex_attention(query, query, query)


def _sums_stay_in_16_bits() -> None:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as Options

    chosen = [Options._resolve_auto_acc_dtype(torch.bfloat16, torch.device(kind)) for kind in ("chip", "cpu")]
    assert chosen[0] != chosen[1]


def _there_is_no_scatter() -> None:
    assert hasattr(torch._C, "_scatter") == torch._C._has_cuda  # where it exists, it is CUDA's


def _captured_steps_are_not_refused() -> None:
    parameter = nn.Parameter(torch.ones(2, device="chip"))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    accepted = False
    with contextlib.suppress(RuntimeError), torch.chip.graph(torch.chip.Graph()):
        optimizer._accelerator_graph_capture_health_check()
        accepted = True
    assert accepted


def _autocast_is_not_in_the_list() -> None:
    keys = torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    assert torch._C.DispatchKey.AutocastPrivateUse1 not in keys
    assert torch._C.DispatchKey.AutocastCUDA in keys


def _opcheck_refuses_the_chip() -> None:
    from torch.testing._internal.optests import generate_tests

    x = torch.ones(2, device="chip", requires_grad=True)
    with pytest.raises(NotImplementedError, match="NYI devices other than CPU/CUDA"):
        generate_tests.autograd_registration_check(torch.ops.aten.sin.default, (x,), {})


@contextlib.contextmanager
def _group(backend: str | None = None) -> Iterator[None]:
    """Run the block in a group of this process alone."""
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _groups_take_other_backends() -> None:
    with _group():
        assert dist.get_backend() != "chip"  # the first replacement: its default is named
    if torch.version.cuda is not None:  # a build for CUDA allows the hooks on every device
        return
    with _group("chip"):
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2, device="chip"))
        with pytest.raises(TypeError, match="BF16"):
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)


def _shards_need_philox() -> None:
    with _group("chip"):
        mesh = init_device_mesh("chip", (1,))
        with pytest.raises(AssertionError):  # of the size of an offset
            torch.distributed.tensor.rand(8, device_mesh=mesh, placements=[Shard(0)])


def _kernels_count_twice() -> None:
    x = torch.randn(256, 256, device="chip")
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    kinds = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=kinds, with_stack=True, experimental_config=config) as found:
        for _ in range(4):
            x @ x
    kernels = [event for event in found.events() if event.device_type == DeviceType.PrivateUse1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stacks"
        found.export_stacks(str(path), "self_privateuse1_time_total")
        times = [int(line.rsplit(" ", 1)[1]) for line in path.read_text().splitlines()]
    assert sum(times) > 1.5 * sum(event.device_time_total for event in kernels) > 0


def _tensors_do_not_travel() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        ForkingPickler.dumps(torch.ones(2, device="chip"))


def _inductor_has_no_generator() -> None:
    from torch._inductor.codegen.common import device_codegens

    torch._dynamo.reset()
    others = {
        name: each for name, each in device_codegens.items() if name != "chip"
    }  # another test may add it
    with mock.patch.dict(device_codegens, others, clear=True), pytest.raises(Exception, match="chip"):
        torch.compile(lambda x: x + 1)(torch.ones(2, device="chip"))


NEEDED: list[tuple[ModuleType, Callable[[], None]]] = [
    (dlpack, _dlpack_has_no_device),
    (lazy_modules, _lazy_parameters_do_not_move),
    (flex_attention, _flex_attention_refuses_the_chip),
    (cross_entropy, _sums_stay_in_16_bits),
    (data_parallel, _there_is_no_scatter),
    (graph_capture, _captured_steps_are_not_refused),
    (higher_order, _autocast_is_not_in_the_list),
    (opcheck, _opcheck_refuses_the_chip),
    (distributed, _groups_take_other_backends),
    (dtensor_random, _shards_need_philox),
    (profiler_stacks, _kernels_count_twice),
    (sharing, _tensors_do_not_travel),
    (chip_compile, _inductor_has_no_generator),
]


@contextlib.contextmanager
def without(module: ModuleType) -> Iterator[None]:
    """Run the block without the patches of a module."""
    module.uninstall()
    try:
        yield
    finally:
        module.install()


NEEDED = [each for each in NEEDED if each[0] is not graph_capture or CAPTURE_IS_CHECKED_ON_CUDA_ALONE]


@pytest.mark.parametrize(("module", "fails"), NEEDED, ids=lambda each: getattr(each, "__name__", ""))
def test_pytorch_fails_without_the_patch(module: ModuleType, fails: Callable[[], None]) -> None:
    with without(module):
        fails()


def test_pytorch_knows_the_attention_of_cuda_only() -> None:
    """DTensor's rules and the handlers of context parallelism, which the chip's patches add to."""
    code = """
        import torch
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops
        propagator = DTensor._op_dispatcher.sharding_propagator
        rules = {*propagator.op_strategy_funcs, *propagator.op_single_dim_strategy_funcs}
        aten = torch.ops.aten
        for name in "flash_attention", "flash_attention_for_cpu", "fused_attention_overrideable":
            operator = getattr(aten, f"_scaled_dot_product_{name}").default
            print(operator in rules, operator in custom_ops)
    """
    printed = run_fresh(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.splitlines()
    assert printed == ["True True", "False False", "False False"]


def test_rpc_does_not_carry_the_chips_tensors_by_itself(tmp_path: Path) -> None:
    code = f"""
        import torch
        from isthmus.chip.patches import rpc as patch
        from torch.distributed import rpc
        patch.uninstall()
        options = rpc.TensorPipeRpcBackendOptions(
            init_method="file://{tmp_path}/store", device_maps={{"one": {{"chip:0": "chip:0"}}}}
        )
        rpc.init_rpc("one", rank=0, world_size=1, rpc_backend_options=options)
        rpc.rpc_sync("one", torch.neg, args=(torch.ones(2, device="chip"),))
        print("carried")
    """
    ended = run_fresh(code)
    assert "carried" not in ended.stdout and "chip" in ended.stderr
