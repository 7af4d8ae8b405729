"""The proxies of the shim, in this process: CUDA's names work inside the scope only."""

import copy
import inspect
import pickle
import sys
from typing import ClassVar

import pytest
import torch
from torch import nn

from isthmus import shim
from isthmus.shim import explain, rules
from isthmus.shim.accelerator import current
from isthmus_common import patches
from tests.helpers.children import output
from tests.helpers.command import run
from tools.repository import ROOT

CHIP0 = torch.device("chip", 0)


# ---- the scope -----------------------------------------------------------------------------------------------
def _state():
    """Return every attribute of every object that the shim patches, by identity."""
    with shim.enter() as scope:
        targets = {patch.target for patch in scope.patches}
    found = {"meta_path": list(sys.meta_path), "registry": list(torch.serialization._package_registry)}
    for target in targets:
        if " " in target or ":" in target:
            continue
        owner, name = patches.resolve(target)
        found[target] = vars(owner).get(name, "absent")
        found[f"{target} of the type"] = getattr(owner, name, "absent") if isinstance(owner, type) else None
    return found


def test_leaving_the_scope_restores_every_attribute():
    before = _state()
    with shim.enter():
        inside = {name: value for name, value in _state_inside(before).items() if value is not before[name]}
    after = _state()
    assert len(inside) > 250
    assert before.keys() == after.keys()
    changed = [name for name in before if before[name] is not after[name] and before[name] != after[name]]
    assert changed == []


def _state_inside(names):
    found = {}
    for target in names:
        if "." in target and " " not in target:
            owner, name = patches.resolve(target)
            found[target] = vars(owner).get(name, "absent")
    return found


def test_cuda_is_refused_again_after_the_scope():
    with shim.enter():
        assert torch.zeros(1, device="cuda").device == CHIP0
    assert torch.device("cuda").type == "cuda"
    with pytest.raises((AssertionError, RuntimeError), match=r"not compiled with CUDA|no NVIDIA driver"):
        torch.zeros(1, device="cuda")
    assert patches.active("shim") == []


def test_scopes_nest():
    with shim.enter():
        with shim.enter():
            assert torch.device("cuda") == torch.device("chip")
        assert torch.device("cuda") == torch.device("chip") and torch.ones(1).cuda().device == CHIP0
    assert torch.device("cuda") != torch.device("chip")


def test_a_failure_half_way_undoes_earlier_changes(monkeypatch):
    monkeypatch.setitem(rules.METHOD_FIRST, "torch.nn.Module.to_empty", "no_such_parameter")
    with pytest.raises(patches.PatchError, match="to_empty"):
        shim.enter()
    assert torch.device("cuda").type == "cuda" and patches.active("shim") == []


def test_explain_prints_each_patch():
    text = explain.explanation()
    with shim.enter() as scope:
        assert all(f"  {patch.target} " in text and patch.reason in text for patch in scope.patches)


# ---- devices -------------------------------------------------------------------------------------------------
def test_torch_device_remains_a_type(cuda):
    device = torch.device("cuda:1")
    assert device == torch.device("cuda", 1) == torch.device(type="cuda", index=1) == torch.device("chip:1")
    assert type(device) is torch.device and isinstance(device, torch.device)
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device
    assert isinstance(torch.Generator(device="cuda"), torch.Generator)
    assert torch.Generator("cuda").device == CHIP0


def test_every_function_with_a_device_is_patched():
    takes_device = {
        f"torch.{schema.name[6:]}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and any(argument.name == "device" for argument in schema.arguments)
        if hasattr(torch, schema.name[6:]) and not schema.name.startswith("aten::_")
    }
    assert takes_device - set(rules.FACTORIES) == {"torch.Generator"}


def test_factories_are_patched_and_named(cuda):
    for target in rules.FACTORIES:
        owner, name = patches.resolve(target)
        assert hasattr(getattr(owner, name), "__wrapped__"), f"{target} is not replaced"


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "chip:1", 1, None])
def test_factories_accept_every_way_to_name_a_device(cuda, device):
    names = {"cuda": "chip:0", "cuda:1": "chip:1", "chip:1": "chip:1", 1: "chip:1", None: "cpu"}
    expected = torch.device(names[device])
    assert torch.zeros(2, device=device).device == expected
    assert torch.tensor([1.0], device=device).device == expected
    assert torch.ones(1).new_full((2,), 3.0, device=device).device == expected


def test_tensor_methods(cuda):
    x = torch.ones(2)
    for moved in (
        x.cuda(),
        x.cuda(0),
        x.cuda("cuda:0"),
        x.to("cuda"),
        x.to(device="cuda"),
        x.to(torch.device("cuda")),
    ):
        assert moved.device == CHIP0
    assert x.cuda(1).device.index == 1 and x.to("cuda", torch.float16).dtype == torch.float16
    assert x.cuda().cuda().data_ptr() != 0 and (y := x.cuda()).cuda() is y and y.to("cuda") is y
    assert torch.Tensor.to is not torch._C.TensorBase.to
    assert x.untyped_storage().cuda().device == CHIP0


def test_a_device_made_before_the_shim_is_translated():
    device = torch.device("cuda:0")
    with shim.enter():
        assert torch.ones(1).to(device).device == CHIP0 and torch.ones(1, device=device).device == CHIP0
        assert nn.Linear(1, 1).to(device).weight.device == CHIP0


@pytest.mark.parametrize("move", [lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.chip()])
def test_lazy_modules_move_before_they_have_a_shape(cuda, move):
    module = move(nn.LazyLinear(3))
    assert nn.parameter.is_lazy(module.weight)
    assert module(torch.ones(2, 5, device="cuda")).device == CHIP0
    assert module.weight.shape == (3, 5) and module.weight.device == CHIP0


def test_modules_keep_their_parameters(cuda):
    model = nn.Linear(2, 2)
    weight, optimizer = model.weight, torch.optim.SGD(model.parameters(), lr=0.5)
    model.cuda()
    assert model.weight is weight and weight.device == CHIP0
    before = weight.detach().clone()
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    assert torch.equal(weight.detach(), before - 0.5)
    assert nn.Linear(2, 2, device="cuda").weight.device == nn.Linear(2, 2).to("cuda").weight.device == CHIP0


def test_default_device(cuda):
    with torch.device("cuda"):
        assert torch.zeros(1).device == CHIP0
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(1).device == CHIP0 and torch.get_default_device() == CHIP0
    finally:
        torch.set_default_device(None)


def test_tensor_types(cuda):
    x = torch.cuda.FloatTensor([1.0, 2.0])
    assert x.device == CHIP0 and x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x.cpu(), torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.HalfTensor)
    assert torch.ones(1).type(torch.cuda.HalfTensor).dtype == torch.float16
    assert torch.ones(1).type("torch.cuda.LongTensor").device == CHIP0
    assert torch.ones(1).type(torch.int32).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type")
@pytest.mark.parametrize("kind", ["torch.cuda.FloatTensor", "class"])
def test_default_tensor_type(cuda, kind):
    torch.set_default_tensor_type(torch.cuda.FloatTensor if kind == "class" else kind)
    try:
        assert torch.zeros(1).device == CHIP0
        made = [torch.Tensor([1, 2]), torch.Tensor(2, 3), torch.Tensor(), torch.Tensor(torch.zeros(2))]
        assert [each.device for each in made] == [CHIP0] * 4 and made[0].tolist() == [1.0, 2.0]
        assert torch.DoubleTensor([1]).device.type == torch.Tensor([1], device="cpu").device.type == "cpu"
        assert type(nn.Parameter(made[0])) is nn.Parameter
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.zeros(1).device.type == torch.Tensor([1]).device.type == "cpu"
    assert "__new__" not in vars(torch.Tensor)


def parameter_kinds(function):
    return [(each.name, each.kind) for each in inspect.signature(function).parameters.values()]


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type")
@pytest.mark.parametrize("name", ["FloatTensor", "HalfTensor", "BFloat16Tensor", "DoubleTensor"])
def test_dynamo_takes_the_constructor_of_a_default_tensor_type(cuda, name):
    """Its first import, as by an optimizer's step, compares the signature of torch.Tensor.__new__."""
    expected = parameter_kinds(torch.Tensor.__new__)
    torch.set_default_tensor_type(f"torch.cuda.{name}")
    try:
        assert parameter_kinds(torch.Tensor.__new__) == expected
        assert torch.Tensor([2]).item() == torch.Tensor(torch.ones(1)).item() + 1
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")


# ---- torch.cuda ----------------------------------------------------------------------------------------------
def test_every_public_name_of_torch_cuda_works_or_raises(cuda):
    left = []
    with_meaning = {"CudaError", "cudaStatus", "DeferredCudaCallError", "caching_allocator_enable"}
    for name in torch.cuda.__all__:
        value = getattr(torch.cuda, name)
        module = getattr(value, "__module__", "") or ""
        if (
            module.startswith("torch.cuda")
            and name not in with_meaning
            and not name.endswith(("Storage", "Tensor"))
        ):
            left.append(name)
    assert left == []


def test_documented_answers(cuda):
    assert torch.cuda.is_available() is True and torch.cuda.device_count() == 2
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.is_bf16_supported() and not torch.cuda.is_tf32_supported()
    properties = torch.cuda.get_device_properties("cuda:1")
    assert (properties.major, properties.minor) == (8, 0) and properties.total_memory == 2 << 30
    assert properties.name == torch.cuda.get_device_name(1) != ""
    free, total = torch.cuda.mem_get_info(0)
    assert 0 < free <= total == 2 << 30
    assert torch.cuda.get_arch_list() == ["sm_80"] and torch.cuda.nccl.version() >= (2, 10)


def test_pytorch_itself_sees_the_real_device(cuda):
    assert torch.cuda.is_available()
    namespace = {"__name__": "torch.some.module", "torch": torch}
    exec("answer = torch.cuda.is_available()", namespace)
    assert namespace["answer"] is False
    assert torch.backends.cuda.is_built()
    assert torch._utils._get_available_device_type() == "chip"


def test_memory_and_current_device(cuda):
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() >= x.nbytes and torch.cuda.max_memory_allocated(0) >= x.nbytes
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory.memory_allocated(
        "cuda:0"
    )
    assert torch.cuda.max_memory_cached() >= x.nbytes and "chip" in torch.cuda.memory_summary()
    with torch.cuda.device("cuda:1"):
        assert torch.cuda.current_device() == 1 and torch.empty(1, device="cuda").get_device() == 1
    assert torch.cuda.current_device() == 0
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"^CUDA out of memory\. chip 0 is out of memory: "):
        torch.empty(1 << 40, device="cuda")


def test_a_forked_child_counts_devices_and_is_refused_in_cudas_words():
    code = """
        import os, torch
        from isthmus import shim

        with shim.enter():
            torch.ones(1, device="cuda")
            if os.fork() == 0:
                print(torch.cuda.is_available(), torch.cuda.device_count())
                try:
                    torch.ones(1, device="cuda")
                except RuntimeError as error:
                    print(str(error).splitlines()[0], flush=True)
                os._exit(0)
            os.wait()
    """
    assert output(code).splitlines() == [
        "True 2",
        "Cannot re-initialize CUDA in forked subprocess: the chip cannot be used in a process forked after its first "
        "use. Use the spawn start method.",
    ]


def test_streams_and_events(cuda):
    stream, start, end = (
        torch.cuda.Stream(),
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    start.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        x = torch.ones(4, device="cuda") * 2
    torch.cuda.current_stream().wait_stream(stream)
    x.record_stream(torch.cuda.current_stream())
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0 and x.sum().item() == 8
    assert isinstance(stream, torch.cuda.Stream) and isinstance(end, torch.cuda.Event)
    assert isinstance(torch.cuda.default_stream("cuda:0"), torch.cuda.Stream)


def test_random_numbers(cuda):
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="cuda"))
    assert len(torch.cuda.get_rng_state_all()) == 2 and torch.cuda.initial_seed() == 7
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        torch.rand(3, device="cuda")
    assert torch.cuda.random.get_rng_state("cuda:0").dtype == torch.uint8
    assert isinstance(torch.cuda.default_generators[0], torch.Generator)


@pytest.mark.parametrize(
    "call",
    [  # named as text, since the shim is not entered yet
        "list_gpu_processes()",
        "change_current_allocator(None)",
        "cudart().cudaMalloc",
    ],
)
def test_meaningless_calls_raise_one_clear_line(cuda, call):
    with pytest.raises(NotImplementedError, match=r"^torch\.cuda\.\S+ is not available on chip[^\n]*$"):
        eval(f"torch.cuda.{call}")


def test_graphs_by_their_names_of_cuda(cuda):
    from torch.cuda.graphs import CUDAGraph, graph

    assert torch.cuda.CUDAGraph is CUDAGraph and torch.cuda.graph is graph
    x, captured = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, pool=torch.cuda.graph_pool_handle(), stream=torch.cuda.Stream()):
        assert torch.cuda.is_current_stream_capturing()
        y = x + 1
    x.fill_(2)
    captured.replay()
    assert y.tolist() == [3, 3, 3]
    graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(3, 2).cuda(), (x,))
    assert graphed(x).device == CHIP0
    with pytest.raises(RuntimeError, match="cudaGraph_t"):
        captured.raw_cuda_graph()


def test_nvtx_and_profiler_do_nothing(cuda):
    torch.cuda.nvtx.range_push("a")
    torch.cuda.nvtx.mark("b")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("c"):
        pass
    torch.cuda.profiler.start()
    torch.cuda.cudart().cudaProfilerStart()
    assert not torch.cuda.is_current_stream_capturing()


# ---- mixed precision -----------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_autocast_and_scaler_in_their_old_and_new_spellings(cuda):
    x = torch.ones(4, 4, device="cuda")
    for context, dtype in (
        (torch.autocast("cuda"), torch.float16),
        (torch.autocast(device_type="cuda", dtype=torch.bfloat16), torch.bfloat16),
        (torch.amp.autocast("cuda"), torch.float16),
        (torch.cuda.amp.autocast(dtype=torch.bfloat16), torch.bfloat16),
    ):
        with context:
            assert (
                (x @ x).dtype == dtype == torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype()
            )
            assert torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled()
    assert not torch.is_autocast_enabled("cuda")
    for scaler in (torch.amp.GradScaler("cuda"), torch.amp.GradScaler(), torch.cuda.amp.GradScaler()):
        weight = torch.ones(2, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.is_enabled() and weight.tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_custom_fwd_casts(cuda):
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
            return x * 2

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


# ---- nothing process-wide is disabled ------------------------------------------------------------------------
def test_torch_jit_script(cuda):
    @torch.jit.script
    def function(x, device: torch.device):
        y = torch.zeros(2, device="cuda") + torch.ones(2, device=device)
        z = y.cuda() if x.is_cuda else y
        if x.device.type == "cuda":
            z = z + x.to("cuda")
        return z + torch.zeros_like(z, device="cuda")

    assert function(torch.ones(2, device="cuda"), torch.device("cuda")).tolist() == [2.0, 2.0]
    assert function(torch.ones(2), torch.device("cuda")).tolist() == [1.0, 1.0]
    assert isinstance(function, torch.jit.ScriptFunction)


def test_a_scripted_module_that_holds_a_cuda_device(cuda):
    """Its constants are real CUDA devices that no proxy sees; the factories behind CUDA's dispatch key do."""
    graph = torch._C.parse_ir(
        """graph():
        %none : NoneType = prim::Constant()
        %size : int[] = prim::Constant[value=[2]]()
        %device : Device = prim::Constant[value="cuda:0"]()
        %x : Tensor = aten::ones(%size, %none, %none, %device, %none)
        return (%x)"""
    )
    made = torch._C._create_function_from_graph("f", graph)()
    assert made.device == CHIP0 and made.tolist() == [1.0, 1.0]


def test_torch_compile(cuda):
    def function(x):
        y = torch.ones(3, device="cuda") + x.to("cuda").sin()
        return y.cuda() if torch.device("cuda") == torch.device("cuda", 0) else y * 1

    x = torch.rand(3, device="cuda")
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), function(x))


FOLDED = """
import torch
def function(x):
    kind = x.device.type
    on = torch.is_autocast_enabled(kind) and torch.is_autocast_enabled('cuda')
    return x.to(torch.get_autocast_dtype('cuda')) if on else x * 1
compiled = torch.compile(function, backend='eager', fullgraph=True)
x = torch.ones(2, device='cuda')
print(compiled(x).dtype)
with torch.autocast('cuda', dtype=torch.bfloat16):
    print(compiled(x).dtype)
"""


@pytest.mark.full
def test_torch_compile_folds_the_state_of_autocast():
    """Runs in a process that imports Dynamo under the shim, so its table of folded functions has the proxies."""
    done = run("--quiet", "-c", FOLDED)
    assert done.stdout.split() == ["torch.float32", "torch.bfloat16"], done.stderr


def test_data_loader_pins(cuda):
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert all(batch.is_pinned() for (batch,) in loader)
    assert torch.ones(1).pin_memory("cuda").is_pinned()


def test_torch_function_sees_the_method_that_users_name(cuda):
    class Recorder(torch.Tensor):
        calls: ClassVar[list] = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.calls.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    torch.ones(1).as_subclass(Recorder).to("cuda")
    assert torch.Tensor.to in Recorder.calls


# ---- distributed, libraries, data parallelism -----------------------------------------------------------------
def test_backend_strings(cuda):
    accelerator = current()
    ours = accelerator.collective_backend()
    assert accelerator.backend("nccl") == ours and accelerator.backend("gloo") == "gloo"
    assert accelerator.backend("cuda:nccl,cpu:gloo") == f"chip:{ours},cpu:gloo"
    assert (
        accelerator.key("CUDA") == "PrivateUse1" and accelerator.key("AutogradCUDA") == "AutogradPrivateUse1"
    )
    assert accelerator.key("CPU") == "CPU" and accelerator.name("cuda_like") == "cuda_like"
    assert torch.distributed.is_nccl_available() and torch.distributed.is_backend_available("nccl")


def test_backends_read_as_cudas(cuda):
    accelerator = current()
    ours = accelerator.collective_backend()
    assert accelerator.cuda_backend(f"cpu:gloo,chip:{ours}") == "cpu:gloo,cuda:nccl" and ours != "gloo"
    assert accelerator.cuda_backend(ours) == "nccl" and accelerator.cuda_backend("gloo") == "gloo"


def test_custom_operators_registered_for_cuda(cuda):
    @torch.library.custom_op("shim_test::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    library = torch.library.Library("shim_test", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CUDA")
    library.define("four_times(Tensor x) -> Tensor")
    torch.library.register_kernel("shim_test::four_times", "cuda", lambda x: x * 4, lib=library)
    library.define("five_times(Tensor x) -> Tensor")
    torch.library.impl("shim_test::five_times", ["cpu", "cuda"], lambda x: x * 5, lib=library)
    x = torch.ones(1, device="cuda")
    assert twice(x).item() == 2 and torch.ops.shim_test.thrice(x).item() == 3
    assert torch.ops.shim_test.four_times(x).item() == 4 and torch.ops.shim_test.five_times(x).item() == 5
    assert torch.ops.shim_test.five_times(x.cpu()).item() == 5

    @twice.register_kernel("cpu")
    def _(x):
        return x + x + 1

    assert twice(torch.ones(1)).item() == 3 and twice(x).item() == 2


def test_safetensors_takes_the_real_device_too(cuda, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"x": torch.arange(3.0, device="cuda")}, path)
    for device in ("cuda", "cuda:1", "chip:1", "cpu"):
        loaded = safetensors.load_file(path, device=device)["x"]
        assert loaded.device == torch.ones(1, device=device).device and loaded.tolist() == [0.0, 1.0, 2.0]


def test_accelerate_with_fp16(cuda):
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # that of an earlier test
    accelerator = accelerate.Accelerator(mixed_precision="fp16")
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    weight = next(model.parameters())
    before = weight.detach().clone()
    accelerator.backward(model(torch.ones(1, 2, device=accelerator.device)).float().sum() * 0.1)
    optimizer.step()
    assert (
        accelerator.device == torch.device("chip")
        and weight.device == CHIP0
        and not torch.equal(before, weight.detach())
    )
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_data_parallel_on_two_devices(cuda):
    model = nn.DataParallel(nn.Linear(4, 2)).cuda()
    x = torch.randn(6, 4)
    output = model(x)
    output.sum().backward()
    assert model.device_ids == [0, 1] and output.device == CHIP0
    weight, bias = model.module.weight, model.module.bias
    assert torch.allclose(output.cpu(), x @ weight.cpu().T + bias.cpu(), atol=1e-6)
    assert torch.allclose(weight.grad.cpu(), x.sum(0).expand(2, 4), atol=1e-5)


def test_every_documented_answer_is_in_the_documentation():
    from isthmus.shim.cuda_differences import answers

    text = (ROOT / "docs" / "reference" / "cuda-answers.md").read_text()
    for name in [*answers(current()), *rules.CUDA_GRAPHS[:2]]:
        assert f"{name}" in text, (
            f"docs/reference/cuda-answers.md does not say what torch.cuda.{name} answers"
        )
    for value in (
        rules.CUDA_VERSION,
        rules.CAPABILITY_WITH_BFLOAT16,
        rules.CAPABILITY_WITHOUT,
        rules.NCCL_VERSION,
    ):
        assert str(value) in text


def test_the_chips_own_functions_are_used_if_available(cuda):
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        assert (
            torch.chip.get_per_process_memory_fraction()
            == torch.cuda.get_per_process_memory_fraction()
            == 0.5
        )
        torch.cuda.set_sync_debug_mode("warn")
        assert torch.chip.get_sync_debug_mode() == 1
    finally:
        torch.chip.set_per_process_memory_fraction(1.0)
        torch.chip.set_sync_debug_mode(0)
    assert torch.cuda.ipc_collect is torch.chip.ipc_collect
