"""Names that only programs for CUDA use: packages, kernels, graphs and engines."""

from collections.abc import Iterable

from isthmus_migrate.source.cuda_names import look_up

# Packages for NVIDIA's GPUs only.
_CUDA_PACKAGES = frozenset(
    "apex cuda cupy cudf cuml fla flash_attn nvidia_smi pynvml py3nvml pycuda tensorrt triton transformer_engine "
    "xformers bitsandbytes deep_ep numba helion tilelang cutlass".split()
)
# Languages of kernels, and the binding of processes to the processors beside a GPU.
INDUCTOR = (
    "torch._inductor.compile_fx",
    "torch._inductor.standalone_compile",
)  # need a backend of the device
_LANGUAGES = ("cutlass", "helion", "tilelang", "torch.numa", "triton")


CUDA_SOURCE = "CUDA C++"  # stands for sources and operators that only CUDA runs
_ASKS_CUDA = frozenset(
    [
        "torch.version.cuda",
        "torch.version.hip",
        *(f"torch.backends.cudnn.{name}" for name in ("enabled", "is_acceptable", "is_available", "version")),
    ]
)


# Words for the CUDA build of a package, which a test for CUDA chooses.
PROVIDERS = frozenset({"CUDAExecutionProvider", "TensorrtExecutionProvider"})  # providers of ONNX Runtime
CUDA_BUILDS = PROVIDERS | {"faiss-gpu", "onnxruntime-gpu", "tensorflow-gpu"}


def asks_cuda(name: str) -> bool:
    """Whether a dotted name is a question about CUDA, which every PyTorch answers."""
    return name in _ASKS_CUDA


def is_for_cuda_only(name: str) -> bool:
    """Whether a dotted name is of CUDA's runtime, or of a package for NVIDIA's GPUs."""
    if (
        name == CUDA_SOURCE
        or asks_cuda(name)
        or is_below(name, (*_CUDA_PACKAGES, *_LANGUAGES, *_ENGINE_PACKAGES))
    ):
        return True
    while name.startswith("torch."):
        known = look_up(name)
        if known is not None:
            return known.stays
        name = name.rpartition(".")[0]
    return False


# Packages whose buffers, engines and kernels a program is written around; others have a counterpart elsewhere.
_ENGINE_PACKAGES = (
    "cupy", "cupyx", "numba.cuda", "polygraphy", "pycuda", "pynvrtc", "tensorrt", "torch2trt",
    "torch.cuda._annotate_cuda_graph_trace", "torch.cuda._graph_annotations",
)  # fmt: skip
_ENGINE_NAMES = frozenset(
    [
        "kernels.get_kernel", "torch._scaled_mm", "torch.cuda._compile_kernel", "torch.cuda.ExternalStream",
        "torch.cuda.GreenContext", "torch.cuda.MemPool", "torch.cuda.use_mem_pool",
    ]
)  # fmt: skip


def makes_cuda_only(name: str) -> bool:
    """Whether code that uses a dotted name is for CUDA as a whole: graphs, kernels, engines and their memory."""
    return (
        is_graph(name)
        or name in _ENGINE_NAMES
        or any(f"{name}.".startswith(f"{each}.") for each in _ENGINE_PACKAGES)
    )


def is_graph(name: str) -> bool:
    """Whether a dotted name is of CUDA graphs."""
    known = look_up(name)
    return known is not None and known.code == "IM405"


def runs_cuda(name: str) -> bool:
    """Whether a function that uses a dotted name runs, or is, code for NVIDIA's GPUs."""
    return makes_cuda_only(name) or name == CUDA_SOURCE or is_of_kernels(name)


def is_of_kernels(name: str) -> bool:
    """Whether a dotted name is of a language of kernels, most of whose functions run nothing."""
    return is_below(name, _LANGUAGES)


def is_below(name: str, modules: Iterable[str]) -> bool:
    """Whether a dotted name is one of the modules, or in one of them."""
    return any(f"{name}.".startswith(f"{each}.") for each in modules)
