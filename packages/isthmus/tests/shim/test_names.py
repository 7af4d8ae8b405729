"""PyTorch's names in scripts besides devices and torch.cuda: attention, extensions, profiler, numbered devices."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from isthmus import shim

CHIP0 = torch.device("chip", 0)


# ---- devices by number, memory formats ------------------------------------------------------------------------
def test_a_number_is_a_device(cuda):
    module = nn.Linear(1, 1)
    for tensor in (
        torch.zeros(1, device=1),
        torch.ones(1).to(1),
        torch.ones(1).to(device=1),
        torch.ones(1).cuda(1),
        torch.ones(1).new_zeros(1, device=1),
        module.to(1).weight,
        module.cuda(1).weight,
        module.to_empty(device=1).weight,
        torch.zeros(1, device=torch.device(1)),
    ):
        assert tensor.device == torch.device("chip", 1)
    torch.set_default_device(1)
    try:
        assert torch.zeros(1).get_device() == 1
    finally:
        torch.set_default_device(None)


@pytest.mark.host("its convolutions keep the layout")
def test_channels_last(cuda):
    images = torch.rand(2, 3, 8, 8)
    convolution = nn.Conv2d(3, 4, 3).to("cuda", memory_format=torch.channels_last)
    for moved in (
        images.cuda(memory_format=torch.channels_last),
        images.to("cuda", non_blocking=True, memory_format=torch.channels_last),
        images.cuda().to(memory_format=torch.channels_last),
    ):
        assert moved.is_contiguous(memory_format=torch.channels_last)
        assert convolution(moved).is_contiguous(memory_format=torch.channels_last)
    expected = F.conv2d(images, convolution.weight.cpu(), convolution.bias.cpu())
    assert torch.allclose(convolution(images.cuda()).cpu(), expected, atol=1e-6)


def test_storages_are_made_on_the_device(cuda):
    for device in ("cuda:1", torch.device("cuda:1"), 1):
        assert torch.UntypedStorage(8, device=device).device == torch.device("chip", 1)
    assert torch.UntypedStorage(8).device.type == "cpu"
    assert torch._pin_memory(torch.ones(1), "cuda").is_pinned()


def test_storages_are_plain_after_the_scope():
    with shim.enter():
        pass
    assert torch.UntypedStorage(8).nbytes() == 8 and torch.ones(2).untyped_storage().nbytes() == 8
    assert "__new__" not in vars(torch.UntypedStorage)


def test_handles_of_streams(cuda):
    assert torch.cuda.Stream().cuda_stream != torch.cuda.Stream().cuda_stream
    assert isinstance(torch.cuda.current_stream().cuda_stream, int)


def test_functions_of_the_bindings_follow_streams_and_devices(cuda):
    raw, current = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getCurrentStream
    default, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    assert raw(0) == default.cuda_stream and isinstance(raw(0), int)
    with torch.cuda.stream(stream):
        assert raw(0) == stream.cuda_stream != default.cuda_stream
        assert current(0) == (stream.stream_id, stream.device_index, stream.device_type)
        with torch.cuda.stream(torch.cuda.default_stream()):
            assert raw(0) == torch.cuda.default_stream().cuda_stream
    id, index, kind = current(0)
    torch._C._cuda_setStream(stream_id=stream.stream_id, device_index=0, device_type=stream.device_type)
    assert torch.cuda.current_stream() == stream
    torch._C._cuda_setStream(stream_id=id, device_index=index, device_type=kind)
    assert current(0) == torch._C._cuda_getDefaultStream(0) and raw(0) == default.cuda_stream
    if torch.cuda.device_count() > 1:
        torch._C._cuda_setDevice(1)
        assert torch._C._cuda_getDevice() == torch.cuda.current_device() == 1
        assert raw(1) == torch.cuda.current_stream(1).cuda_stream
        torch._C._cuda_setDevice(0)
    torch._C._cuda_synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda._clear_cublas_workspaces()
    assert torch._C._cuda_isInBadFork() is False
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *sizes: seen.append(sizes))
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 60, dtype=torch.int8, device="cuda")
    assert len(seen) == 1 and len(seen[0]) == 4
    assert torch.cuda._is_compiled() == torch._C._has_cuda  # PyTorch itself sees the truth


def test_history_of_memory(cuda, tmp_path):
    torch.cuda.memory._record_memory_history(max_entries=100)
    try:
        x = torch.ones(1 << 20, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    sizes = [block["size"] for segment in snapshot["segments"] for block in segment["blocks"]]
    assert max(sizes) >= x.nbytes and any(
        event["action"] == "alloc" for event in snapshot["device_traces"][0]
    )
    assert (tmp_path / "snapshot.pickle").stat().st_size > 0


def test_export(cuda):
    class Model(nn.Module):
        def forward(self, x):
            return x.to("cuda") + torch.ones(1, device="cuda")

    program = torch.export.export(Model(), (torch.ones(2),))
    assert program.module()(torch.ones(2)).tolist() == [2.0, 2.0]


def test_scripted_modules_load_on_the_device(cuda):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(1, 1).cuda()), buffer)
    for location in (None, "cuda:0", torch.device("cuda")):
        buffer.seek(0)
        assert torch.jit.load(buffer, map_location=location).weight.device == CHIP0


# ---- attention -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "backends", [SDPBackend.EFFICIENT_ATTENTION, [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]]
)
@pytest.mark.parametrize("set_priority", [False, True])
def test_a_choice_of_attention_kernels(cuda, backends, set_priority):
    x = torch.rand(1, 2, 8, 16, device="cuda")
    before = torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)
    with sdpa_kernel(backends, set_priority=set_priority):
        found = F.scaled_dot_product_attention(x, x, x, dropout_p=0.0, is_causal=True)
    assert torch.allclose(found, F.scaled_dot_product_attention(x, x, x, is_causal=True), atol=1e-6)
    assert torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True) == before


def test_math_alone_stays_alone(cuda):
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.backends.cuda.math_sdp_enabled() and not torch.backends.cuda.flash_sdp_enabled()


def test_a_choice_of_attention_kernels_compiles(cuda):
    def attend(x):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.rand(1, 2, 8, 16, device="cuda")
    assert torch.allclose(torch.compile(attend, backend="aot_eager")(x), attend(x), atol=1e-6)


# ---- profiler ------------------------------------------------------------------------------------------------
def test_columns_of_the_profiler(cuda):
    assert ProfilerActivity.CUDA in torch.profiler.supported_activities()
    x = torch.ones(64, 64, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
        x @ x
    averages = profiler.key_averages()
    row = next(event for event in averages if event.key == "aten::mm")
    assert row.cuda_time_total == row.device_time_total >= row.self_cuda_time_total > 0
    assert row.cuda_memory_usage == row.device_memory_usage > 0
    assert row.self_cuda_memory_usage == row.self_device_memory_usage
    for column in ("cuda_time_total", "self_cuda_time_total", "self_cuda_memory_usage", "cuda_memory_usage"):
        assert "aten::mm" in averages.table(sort_by=column, row_limit=3)


def test_the_old_profiler(cuda):
    with torch.autograd.profiler.profile(use_device="cuda") as profiler:
        torch.ones(8, device="cuda").sum()
    assert any(event.key == "aten::sum" for event in profiler.key_averages())
    with torch.autograd.profiler.emit_nvtx():
        assert torch.ones(2, device="cuda").sum().item() == 2


# ---- C++ extensions --------------------------------------------------------------------------------------------
def test_cpp_extensions_do_not_need_cuda(cuda):
    from torch.utils import cpp_extension

    assert cpp_extension.include_paths("cuda") == cpp_extension.include_paths()
    assert cpp_extension.library_paths(device_type="cuda") == cpp_extension.library_paths()
    assert (
        cpp_extension.CUDAExtension("x", ["x.cpp"]).libraries
        == cpp_extension.CppExtension("x", ["x.cpp"]).libraries
    )


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("CUDAExtension", ("fused", ["fused.cpp", "fused.cu"])),
        ("load", ("fused", "fused.cu")),
        ("load_inline", ("fused", "", "__global__ void f() {}")),
    ],
)
def test_cuda_sources_raise_one_line(cuda, function, arguments):
    from torch.utils import cpp_extension

    with pytest.raises(NotImplementedError, match=r"^extension 'fused': \S+ is CUDA C\+\+[^\n]*chip[^\n]*$"):
        getattr(cpp_extension, function)(*arguments)


# ---- process groups, mixed precision ---------------------------------------------------------------------------
def test_the_class_of_nccl(cuda):
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas = 8
    assert options.is_high_priority_stream and not isinstance(options, ProcessGroupNCCL)
    assert torch.distributed.distributed_c10d.ProcessGroupNCCL is ProcessGroupNCCL


def test_mixed_precision_is_available(cuda):
    assert not torch.cuda.amp.common.amp_definitely_not_available()
