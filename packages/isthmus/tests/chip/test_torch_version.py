"""Differences between versions of PyTorch stand in two files, and each patch is still needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from isthmus.chip.patches import (
    cross_entropy,
    data_parallel,
    dlpack,
    flex_attention,
    graph_capture,
    higher_order,
    lazy_modules,
    opcheck,
)
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


NEEDED: list[tuple[ModuleType, Callable[[], None]]] = [
    (dlpack, _dlpack_has_no_device),
    (lazy_modules, _lazy_parameters_do_not_move),
    (flex_attention, _flex_attention_refuses_the_chip),
    (cross_entropy, _sums_stay_in_16_bits),
    (data_parallel, _there_is_no_scatter),
    (graph_capture, _captured_steps_are_not_refused),
    (higher_order, _autocast_is_not_in_the_list),
    (opcheck, _opcheck_refuses_the_chip),
]


@contextlib.contextmanager
def without(module: ModuleType) -> Iterator[None]:
    """Run the block without the patches of a module."""
    module.uninstall()
    try:
        yield
    finally:
        module.install()


@pytest.mark.parametrize(("module", "fails"), NEEDED, ids=lambda each: getattr(each, "__name__", ""))
def test_pytorch_fails_without_the_patch(module: ModuleType, fails: Callable[[], None]) -> None:
    with without(module):
        fails()
