"""Code that a mock of a function of ``torch.cuda`` steers: code that stays for CUDA, or code that is converted."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from isthmus_migrate.flow.facts import Facts
from isthmus_migrate.flow.symbols import Symbols
from isthmus_migrate.source.cuda_branches import stays
from isthmus_migrate.source.cuda_names import Guard, look_up
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import names_cuda
from isthmus_migrate.source.verdicts import Steers

_TEST = "torch.cuda.is_available"
_MOST = 200  # functions that a test reaches; one that reaches more shows nothing


def steered_use(module: Module, node: ast.expr, name: str) -> Steers:
    """Return what becomes of a use of a name of ``torch.cuda``, as its module shows.

    Args:
        module: the module.
        node: the use.
        name: its dotted name.
    """
    entry = look_up(name)
    is_test = name == _TEST
    if entry is None or entry.guard is Guard.CUDA or (is_test and stays(module, module.parents[node])):  # type: ignore[arg-type]
        return Steers.CUDA
    if entry.becomes != name.replace(".cuda.", ".accelerator."):
        return Steers.BOTH
    return Steers.BOTH if is_test and not _is_plain(module, module.parents[node]) else Steers.ACCELERATOR


def _is_plain(module: Module, call: ast.AST) -> bool:
    """Whether a call is the whole test of an ``if`` that chooses no device, in a file that knows CUDA only."""
    branch = module.parents[call]
    if not isinstance(branch, ast.If) or branch.test is not call or module.mentions("mps", "xpu"):
        return False
    return not any(names_cuda(each) for each in ast.walk(branch))


class Steering:
    """The uses of ``torch.cuda`` in a project, by the functions that reach them.

    Args:
        found: facts of its modules.
        symbols: its definitions.
        only: its functions that use what only CUDA has.
        code: those of them that run kernels or graphs.
    """

    def __init__(
        self, found: Iterable[Facts], symbols: Symbols, only: frozenset[str], code: frozenset[str]
    ) -> None:
        self._symbols = symbols
        self._references: dict[str, Iterable[str]] = {}
        self._methods: dict[str, set[str]] = defaultdict(set)
        self._uses: dict[str, dict[str, Steers]] = {}
        for facts in found:
            self._references |= {name: names for name, names in facts.references.items() if name}
            for name in facts.functions:
                self._methods[name.rpartition(".")[0]].add(name)
            for user, uses in facts.references.items():
                ends = {name: each.steers for name, each in uses.items() if each.steers is not None}
                is_kept = _TEST in ends and any(symbols.resolve(each) in only for each in uses)
                is_code = user in code or user.rpartition(".")[0] in code
                self._uses[user] = {
                    name: Steers.CUDA if is_code or (is_kept and name == _TEST) else end
                    for name, end in ends.items()
                }

    def of(self, facts: Facts) -> Mapping[str, Mapping[str, Steers]]:
        """Return what mocks in the functions of a module steer, by function and name of ``torch.cuda``."""
        if not facts.is_mocking:
            return {}
        everywhere = _join_by_name(self._uses.values())
        found: dict[str, Mapping[str, Steers]] = {"": everywhere}
        for name in facts.functions:
            last = name.rpartition(".")[2]
            users = [each for each, signature in facts.functions.items() if last in signature.named]
            reached = self._reachable_functions([name, *users])  # a fixture steers the tests that take it
            found[name] = everywhere | _join_by_name(self._uses.get(each, {}) for each in reached)
        return found

    def _reachable_functions(self, roots: Iterable[str]) -> list[str]:
        queue = list(roots)
        seen = set(queue)
        for name in queue:
            for each in self._callees(name):
                if each not in seen:
                    seen.add(each)
                    queue.append(each)
            if len(queue) > _MOST:
                return []
        return queue

    def _callees(self, name: str) -> Iterator[str]:
        for each in sorted(self._references.get(name, ())):
            resolved = self._symbols.resolve(each)
            yield from (resolved, *sorted(self._methods.get(resolved, ())))


def _join_by_name(uses: Iterable[Mapping[str, Steers]]) -> dict[str, Steers]:
    ends: dict[str, set[Steers]] = defaultdict(set)
    for each in uses:
        for name, end in each.items():
            ends[name].add(end)
    return {name: _join_ends(each) for name, each in ends.items()}


def _join_ends(ends: set[Steers]) -> Steers:
    return next(iter(ends)) if len(ends) == 1 else Steers.BOTH
