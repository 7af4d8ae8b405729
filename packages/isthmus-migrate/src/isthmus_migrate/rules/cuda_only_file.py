"""Files that run code for CUDA only in any case."""

from collections.abc import Iterable, Iterator

from isthmus_common.text import count
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_REMEDY = "port that first; until then the file runs on CUDA only, whatever else is converted"
_SHOWN = 3  # files in the verdict
_CODE = "IM193"


class CudaOnlyFile(Rule):
    """Files that cannot run elsewhere until a kernel, graph or engine is ported."""

    code = _CODE
    name = "cuda-only-file"
    summary = (
        "a file that runs code for CUDA only in any case is listed: it is not convertible without porting it"
    )
    before = "kernel = torch.cuda._compile_kernel(source, name)"
    after = before
    words = ("",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the calls that lead from the top level of the file to such code."""
        if chain := module.around.always:
            calls = " -> ".join(each.removeprefix(f"{module.name}.") for each in chain[:-1])
            said = "is for CUDA only, and this file runs it in any case" + (f": {calls}" if calls else "")
            yield self.needs_manual_change(module, module.at(0), chain[-1], said, _REMEDY)


def verdict(findings: Iterable[Finding]) -> str:
    """Return which files are not convertible, in one line; "" if all are."""
    named = {each.path for each in findings if each.code == _CODE}
    files = sorted(named, key=lambda path: (path.count("/"), path))
    if not files:
        return ""
    rest = f" and {count(len(files) - _SHOWN, 'other')}" if len(files) > _SHOWN else ""
    said = ", ".join(files[:_SHOWN])
    return f"not convertible without porting code for CUDA: {said}{rest} ({_CODE})"
