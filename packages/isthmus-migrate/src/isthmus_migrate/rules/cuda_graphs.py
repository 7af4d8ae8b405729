"""CUDA graphs."""

from isthmus_migrate.rules.manual_rule import StaysRule


class CudaGraphs(StaysRule):
    """CUDA graphs, which have no device-neutral form with all of their names."""

    code = "IM405"
    name = "cuda-graphs"
    summary = "a CUDA graph stays; `isthmus run` serves it"
    before = "graph = torch.cuda.CUDAGraph()"
    after = before
    words = ("CUDAGraph", "cuda.graph", "graph", "make_graphed_callables")
