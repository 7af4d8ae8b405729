"""C++ and CUDA sources of a project: kernels, launches, headers, PTX, and operators bound to Python."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from isthmus_migrate.analyse.cpp import Arity, Binding, Function, Unit, read
from isthmus_migrate.analyse.stand_ins import advise_port
from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding, Severity

# Dispatch keys whose kernels may run on any device, or on the CPU's memory.
_PORTABLE = frozenset(("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "PrivateUse1"))


class Operator(NamedTuple):
    """An operator that the project's C++ binds to Python.

    Attributes:
        module: pybind11 module, or the library's namespace; "" if the build sets it.
        name: its name in Python.
        library: whether it is called through ``torch.ops``.
        cuda: whether it runs only CUDA kernels.
        arity: number of its arguments.
        path: source that binds it.
        line: line of the binding.
    """

    module: str
    name: str
    library: bool
    cuda: bool
    arity: Arity
    path: str
    line: int


def units_of(sources: Iterable[Source]) -> dict[str, Unit]:
    """Parse C++ and CUDA sources; return the results by path."""
    return {source.name: read(source.text) for source in sources}


def findings(units: dict[str, Unit], operators: Iterable[Operator]) -> Iterator[Finding]:
    """Yield findings of C++ and CUDA sources (IM401 to IM404) and of operators bound to Python (IM406)."""
    for path, unit in units.items():
        yield from _of_unit(path, unit)
    yield from map(_binding, operators)


def operators_of(units: dict[str, Unit]) -> list[Operator]:
    """Return the operators that the sources bind to Python, merging declarations with implementations.

    C++ without CUDA and tensors runs anywhere and is left out.
    """
    functions = _Functions(units)
    bound: dict[tuple[bool, str, str, str], list[tuple[str, Binding]]] = defaultdict(list)
    for path, unit in units.items():
        for each in unit.bindings:
            place = "" if each.library else path
            bound[each.library, each.module, each.name, place].append((path, each))
    operators = [_operator(found, units, functions) for found in bound.values()]
    return [each for each in operators if each.cuda or units[each.path].tensors]


class _Functions:
    """Functions of the sources by name; a file's own functions take precedence."""

    def __init__(self, units: dict[str, Unit]) -> None:
        self._defined: dict[str, dict[str, list[Function]]] = defaultdict(lambda: defaultdict(list))
        for path, unit in units.items():
            for each in unit.functions:
                self._defined[each.name][path].append(each)
        self._cuda = self._reaching_cuda(units)

    def meant(self, path: str, name: str) -> list[tuple[str, str]]:
        """Return the definitions of a name used in a file: pairs of path and name."""
        defined = self._defined.get(name, {})
        return [(path, name)] if path in defined else [(place, name) for place in defined]

    def arity(self, path: str, name: str) -> Arity:
        """Return the arity of a function; the widest of its overloads."""
        found = [each.arity for place, _ in self.meant(path, name) for each in self._defined[name][place]]
        if not found or any(each.most is None for each in found):
            return Arity()
        return Arity(min(each.least for each in found), max(each.most or 0 for each in found))

    def cuda(self, path: str, name: str) -> bool | None:
        """Whether a function launches a kernel or calls CUDA's libraries, directly or not; None if undefined."""
        meant = self.meant(path, name)
        return any(each in self._cuda for each in meant) if meant else None

    def _reaching_cuda(self, units: dict[str, Unit]) -> set[tuple[str, str]]:
        callers: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        pending: list[tuple[str, str]] = []
        for path, unit in units.items():
            for each in unit.functions:
                pending += [(path, each.name)] if each.cuda else []
                for word in each.words & self._defined.keys():
                    for callee in self.meant(path, word):
                        callers[callee].add((path, each.name))
        reached: set[tuple[str, str]] = set()
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending += callers[at]
        return reached


def _operator(found: list[tuple[str, Binding]], units: dict[str, Unit], functions: _Functions) -> Operator:
    path, first = found[0]
    arity = next((each.arity for _, each in found if each.arity != Arity()), Arity())
    if arity == Arity() and not first.library:
        arity = functions.arity(path, first.function)
    module = "" if first.module.isupper() else first.module  # TORCH_EXTENSION_NAME, a macro of the build
    cuda = _is_cuda(found, units, functions)
    return Operator(module, first.name, first.library, cuda, arity, path, first.line)


def _is_cuda(found: list[tuple[str, Binding]], units: dict[str, Unit], functions: _Functions) -> bool:
    portable = [(path, each) for path, each in found if each.keys & _PORTABLE]
    if not portable and any("CUDA" in each.keys for _, each in found):
        return True
    known = [functions.cuda(path, each.function) for path, each in portable or found]
    if all(each is None for each in known):
        return any(bool(units[path].headers or units[path].launches) for path, _ in found)
    return any(known)


# ---- findings ------------------------------------------------------------------------------------------------
def _of_unit(path: str, unit: Unit) -> Iterator[Finding]:
    for function in unit.functions:
        if function.kernel:
            said = "is a CUDA kernel"
            yield _finding("IM401", path, function.line, function.name, said, advise_port(function.name))
    for kernel, line in dict.fromkeys(unit.launches):
        said = "is launched as a CUDA kernel"
        yield _finding("IM402", path, line, kernel, said, "keep it with the kernel, in the build for CUDA")
    if unit.headers:
        names = ", ".join(dict.fromkeys(each.text for each in unit.headers))
        keep = "keep the file in the build for CUDA only, or write it with ATen's operators"
        yield _finding("IM403", path, unit.headers[0].line, names, "belongs to CUDA", keep)
    if unit.headers or unit.launches or path.endswith((".cu", ".cuh")):
        for each in unit.ptx:
            said = "is assembly for NVIDIA GPUs"
            yield _finding(
                "IM404", path, each.line, "asm", said, "write it with intrinsics of the target's compiler"
            )


def _binding(operator: Operator) -> Finding:
    name = f"{operator.module}.{operator.name}" if operator.module else operator.name
    if operator.cuda:
        said = "is bound to Python and runs on CUDA only"
        return _finding("IM406", operator.path, operator.line, name, said, advise_port(operator.name))
    said = "is bound to Python by C++"
    keep = "build it again for the target; it works there if it uses ATen's operators and no data pointers"
    return _finding("IM406", operator.path, operator.line, name, said, keep, Severity.REVIEW)


def _finding(
    code: str,
    path: str,
    line: int,
    subject: str,
    message: str,
    todo: str,
    severity: Severity = Severity.MANUAL,
) -> Finding:
    return Finding(code, severity, path, line, line, subject, message, todo)
