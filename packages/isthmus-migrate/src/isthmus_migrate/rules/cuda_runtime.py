"""CUDA's runtime and libraries."""

from isthmus_migrate.rules.manual_rule import StaysRule


class CudaRuntime(StaysRule):
    """Parts of CUDA's runtime and libraries."""

    code = "IM191"
    name = "cuda-runtime"
    summary = "what belongs to CUDA's runtime or libraries stays"
    before = "torch.cuda.cudart().cudaProfilerStart()"
    after = before
    words = ("cuda", "cudnn", "parallel", "_scaled_mm", "_symmetric_memory", "symm_mem")
