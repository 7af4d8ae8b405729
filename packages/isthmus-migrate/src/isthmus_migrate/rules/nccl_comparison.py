"""Tests whether a backend is NCCL, or NCCL is available."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules import backends
from isthmus_migrate.rules.backends import ASKED, BECOMES, DEFAULT
from isthmus_migrate.rules.draft import OR, Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source import versions
from isthmus_migrate.source.conditions import conditions, implies_cuda
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import Use, Verdict

_ON_THE_HOST = frozenset({"mpi", "ucc"})  # backends besides Gloo that the CPU has
_COLLECTIONS = (ast.List, ast.Tuple, ast.Set)
_CHECK = (
    "compare with torch.distributed.get_default_backend_for_device(device) if the other side is a backend"
)
_STAYS = "stands in front of code for NCCL only"


class NcclComparison(Rule):
    """Comparisons with ``"nccl"``, lists of backends, and ``is_nccl_available``."""

    code = "IM202"
    name = "nccl-comparison"
    summary = "tests for NCCL become tests for the backend of the device in use"
    before = 'if dist.get_backend() == "nccl":'
    after = 'if dist.get_backend() != "gloo":'
    words = ("nccl", "NCCL")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find questions for NCCL, compared names, and names in lists."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            if is_read(node) and module.names.qualified(node) in ASKED:
                yield self._question(module, node)
        for node in (*module.of(ast.Constant), *module.of(ast.Attribute)):
            parent = module.parents[node]
            if not backends.is_nccl(module, node):
                continue
            if isinstance(parent, ast.Compare):
                yield self._comparison_finding(module, node, node, parent)
            elif isinstance(parent, _COLLECTIONS):
                holder = module.parents[parent]
                if isinstance(holder, ast.Compare):
                    yield self._comparison_finding(module, node, parent, holder)
                elif not isinstance(holder, ast.Subscript):  # Literal["nccl", "gloo"]
                    yield self._list_finding(module, node, parent)

    def _question(self, module: Module, node: ast.expr) -> Finding:
        """Replace ``is_nccl_available()``."""
        call = module.parents[node]
        place = (node, "torch.distributed.is_nccl_available", "tests for CUDA's collectives")
        if not isinstance(call, ast.Call) or call.func is not node:
            return self.needs_manual_change(
                module, *place, f"call torch.distributed.is_backend_available({_SHOWN}) instead"
            )
        if backends.keeps_nccl(module, call):
            return self.already_portable(module, *place[:2], _STAYS, "stays")
        if any(implies_cuda(module, each) for each in conditions(module, call)):
            return self.already_portable(module, *place[:2], "is asked on CUDA only", "stays")
        choice = module.parents[call]
        is_choice = (
            isinstance(choice, ast.IfExp) and call is choice.test and backends.is_nccl(module, choice.body)
        )
        if is_choice and versions.find_missing(DEFAULT, module.around.torch):
            return self.already_portable(module, *place[:2], "chooses Gloo where NCCL is not built", "stays")
        if is_choice and not module.around.target:
            draft = Draft(module).surround(call, "{type} != {q}cuda{q} or ", "", OR)
            return self.automatic_change(
                *place, "is asked on CUDA only; others take their default backend", draft
            )
        draft = Draft(module).replace(call, f"torch.distributed.is_backend_available({DEFAULT})")
        advice = "becomes torch.distributed.is_backend_available of the device's default backend"
        return self.automatic_change(*place, advice, draft)

    def _comparison_finding(
        self, module: Module, node: ast.expr, holder: ast.expr, test: ast.Compare
    ) -> Finding:
        """Return the finding of a name that is an operand of a comparison, or in a list that is one."""
        others = [each for each in (test.left, *test.comparators) if each is not holder]
        said = "is compared with a backend"
        if backends.keeps_nccl(module, test):
            return self.already_portable(module, node, '"nccl"', _STAYS, "stays")
        if all(backends.is_current(module, each) for each in others):
            draft, advice = _with_accelerator(module, node, test)
            evidence = f"compared with {module.code(others[0])}"
            return self.automatic_change(node, '"nccl"', said, advice, draft, evidence)
        return self.undecided(module, node, '"nccl"', "may be compared with a backend", _CHECK)

    def _list_finding(self, module: Module, node: ast.expr, holder: ast.expr) -> Finding:
        """Return the finding of a name in a list; the choices of an option are what its default is."""
        option = module.parents[holder]
        call = module.parents[option] if isinstance(option, ast.keyword) and option.arg == "choices" else None
        defaults = (
            [each.value for each in call.keywords if each.arg == "default"]
            if isinstance(call, ast.Call)
            else []
        )
        known = next((found for each in (node, *defaults) if (found := _backend(module, each))), None)
        if known is not None:
            draft = Draft(module).replace(node, DEFAULT)
            return self.automatic_change(
                node, '"nccl"', "is one of several backends", BECOMES, draft, known.why
            )
        verdict = backends.verdict(module, node)
        if verdict is not None and verdict.certain and verdict.use is Use.WORD:
            return self.already_portable(
                module, node, '"nccl"', "does not reach torch.distributed as a backend", "stays"
            )
        return self.undecided(module, node, '"nccl"', "may be one of several backends", _CHECK)


def _with_accelerator(module: Module, node: ast.expr, test: ast.Compare) -> tuple[Draft, str]:
    """Return the edits of a comparison, and what it becomes: with two sides, one with Gloo, the CPU's default."""
    draft = Draft(module)
    if module.around.target or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return draft.replace(node, DEFAULT), BECOMES
    equal = isinstance(test.ops[0], ast.Eq)
    named = {text(each) for each in module.of(ast.Constant)}
    hosts = ", ".join(f"{{q}}{each}{{q}}" for each in ("gloo", *sorted(named & _ON_THE_HOST)))
    operator, new = "==" if equal else "!=", "!=" if equal else "=="
    if "," in hosts and node is not test.left:
        hosts, new = f"({hosts})", "not in" if equal else "in"
    else:
        hosts = "{q}gloo{q}"
    start = module.text.index(operator, module.end(test.left))
    draft.swap(test, start, start + len(operator), new)
    return draft.replace(node, hosts), "becomes a test for any other backend than Gloo"


def _backend(module: Module, node: ast.expr) -> Verdict | None:
    """Return what shows a node to be a backend; None if nothing does."""
    known = backends.verdict(module, node)
    return known if known is not None and known.certain and known.use is Use.BACKEND else None


_SHOWN = "torch.distributed.get_default_backend_for_device(DEVICE)"
