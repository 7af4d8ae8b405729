"""Functions and blocks for CUDA only, whose surroundings stay with them."""

import ast
from collections import Counter
from collections.abc import Iterator

from isthmus_common.text import count
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import regions

_REMEDY = "port it as a whole, or keep it for CUDA and write another for other devices"


class CudaRegions(Rule):
    """Code around CUDA graphs, kernels and engines."""

    code = "IM192"
    name = "cuda-regions"
    summary = "a function or branch that runs a CUDA graph, a kernel or an engine stays as a whole"
    before = "def capture():\n    stream = torch.cuda.Stream()\n    graph = torch.cuda.CUDAGraph()"
    after = before
    words = ("",)
    order = 99

    def find(self, module: Module) -> Iterator[Finding]:
        """List each region once, if anything in it would have been converted."""
        found = {each.why: each for each in regions(module).values() if each.is_listed}
        kept = Counter(why for each in module.findings for why in found if each.message.endswith(why))
        for why, number in kept.items():
            head = found[why].head
            said = f"is {why.removeprefix('in ')}; what it does with CUDA stays ({count(number, 'place')})"
            yield self.needs_manual_change(module, head, _name(module, head), said, _REMEDY)


def _name(module: Module, head: ast.AST) -> str:
    """Return the name of a function or class, or of the function around a block."""
    around = (getattr(each, "name", "") for each in (head, *module.enclosing(head)))
    name = next(filter(None, around), "the top level")
    return name if getattr(head, "name", "") else f"a block of {name}"
