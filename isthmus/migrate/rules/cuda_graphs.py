"""CUDA graphs."""

from isthmus.migrate.rules.stays import StaysRule


class CudaGraphs(StaysRule):
    """CUDA graphs, which record CUDA kernels."""

    code = "IM405"
    name = "cuda-graphs"
    summary = "a CUDA graph stays: it records CUDA kernels"
    before = "graph = torch.cuda.CUDAGraph()"
    after = before
    words = ("CUDAGraph", "cuda.graph", "graph", "make_graphed_callables")
