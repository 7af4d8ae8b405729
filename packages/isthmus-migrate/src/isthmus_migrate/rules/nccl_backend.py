"""``"nccl"`` becomes the default backend of the device."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules import backends
from isthmus_migrate.rules.backends import DEFAULT
from isthmus_migrate.rules.device_choice import makes_device
from isthmus_migrate.rules.draft import ATOM, TERNARY, Draft
from isthmus_migrate.rules.functions import needs_guard
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.cuda_names import Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import is_cuda, text
from isthmus_migrate.source.verdicts import Use

_COLLECTIONS = (ast.Compare, ast.List, ast.Tuple, ast.Set)
_CHECK = (
    "if it is a backend of torch.distributed, use torch.distributed.get_default_backend_for_device(device)"
)
_OPTIONS = "replace pg_options too, then use torch.distributed.get_default_backend_for_device(device)"
_TABLE = "use torch.distributed.get_default_backend_for_device(device) instead of the table"


class NcclBackend(Rule):
    """Backend names as arguments, assigned values or defaults."""

    code = "IM201"
    name = "nccl-backend"
    summary = "process groups use the backend of the device in use"
    before = 'torch.distributed.init_process_group("nccl")'
    after = "torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device(DEVICE))"
    words = ("nccl", "NCCL")
    order = 44  # the keys of a table of devices stay with it

    def find(self, module: Module) -> Iterator[Finding]:
        """Find choices of backends, pairs of devices and backends, and single names."""
        chosen: set[ast.AST] = set()
        for choice in module.of(ast.IfExp):
            if backends.is_choice(module, choice):
                chosen.update(ast.walk(choice))
                yield self._choice(module, choice)
        for node in (*module.of(ast.Constant), *module.of(ast.Attribute)):
            if node in chosen:
                continue
            if found := backends.pairs(node):
                yield from self._pairs(module, node, found)
            elif backends.is_nccl(module, node) and not isinstance(module.parents[node], _COLLECTIONS):
                yield from self._find_single(module, node)

    def _choice(self, module: Module, node: ast.IfExp) -> Finding:
        """Replace ``"nccl" if torch.cuda.is_available() else "gloo"`` by the device's default."""
        subject, evidence = '"nccl" or "gloo"', "chosen by whether an accelerator is available"
        known = [backends.verdict(module, each) for each in (node, node.body, node.orelse)]
        is_word = any(each and each.use is Use.WORD and each.certain for each in known)
        if is_word and "backend" not in backends.holder(module, node).lower():
            return self.already_portable(
                module, node, subject, "does not reach torch.distributed as a backend", "stays"
            )
        draft, advice = backends.with_default(module, node)
        return self.automatic_change(node, subject, "chooses a backend", advice, draft, evidence)

    def _find_single(self, module: Module, node: ast.expr) -> Iterator[Finding]:
        known = backends.verdict(module, node)
        if known is None and backends.is_word(module, node):
            return
        if backends.has_options(module, node):
            yield self.needs_manual_change(
                module, node, '"nccl"', "is CUDA's backend, beside options of NCCL", _OPTIONS
            )
        elif known is not None and known.certain and known.use is Use.BACKEND:
            yield self._replace_backend(module, node, known.why)
        elif known is not None and known.certain and known.use in (Use.WORD, Use.KEY):
            yield self.already_portable(
                module, node, '"nccl"', "does not reach torch.distributed as a backend", "stays"
            )
        else:
            may = f"may be CUDA's backend: {known.why}" if known and known.why else "may be CUDA's backend"
            yield self.undecided(module, node, '"nccl"', may, _CHECK)

    def _replace_backend(self, module: Module, node: ast.expr, evidence: str) -> Finding:
        """Replace a backend, or ``{"cuda": "nccl", "cpu": "gloo"}[x]`` by that of ``x``; leave any other table.

        A default written into a table would raise an error where the accelerator has none, whatever is looked up.
        """
        table = module.parents[node]
        if not isinstance(table, ast.Dict) or not _is_for_cuda(module, table, node):
            draft, advice = backends.with_default(module, node)
            return self.automatic_change(node, '"nccl"', "is CUDA's backend", advice, draft, evidence)
        whole, message = module.parents[table], "is CUDA's backend in a table of devices"
        others = [text(each) or last_name(each).lower() for each in table.values if each is not node]
        module.claimed.update(each for key in table.keys if key is not None for each in ast.walk(key))
        if not isinstance(whole, ast.Subscript) or others != ["gloo"]:
            return self.needs_manual_change(module, node, '"nccl"', message, _TABLE)
        template = DEFAULT.replace("{device}", "{x}")
        draft = Draft(module).replace(whole, template, x=module.code(whole.slice))
        return self.automatic_change(
            node, '"nccl"', message, "becomes the default of its device", draft, evidence
        )

    def _pairs(self, module: Module, node: ast.expr, found: list[str]) -> Iterator[Finding]:
        """Replace CUDA's pair by the device's; on the CPU only the other pairs remain."""
        subject, known = f'"{",".join(found)}"', backends.verdict(module, node)
        if backends.is_word(module, node) and not (known and known.use is Use.BACKEND):
            return
        if known and known.certain and known.use is Use.WORD:
            yield self.already_portable(
                module, node, subject, "does not reach torch.distributed as a backend", "stays"
            )
            return
        pair = "{{type}}:{" + DEFAULT + "}"
        template = "f{q}" + ",".join(pair if each == "cuda:nccl" else each for each in found) + "{q}"
        others = ",".join(each for each in found if each != "cuda:nccl")
        is_chosen = not module.around.target and needs_guard(module, node, Guard.ACCELERATOR)
        precedence = TERNARY if is_chosen else ATOM
        if is_chosen:
            template += " if {type} != {q}cpu{q} else {q}" + others + "{q}"
        draft = Draft(module).replace(node, template, precedence)
        said, advice = "names CUDA's collectives", "the pair for CUDA becomes the device's, the others stay"
        evidence = known.why if known else "has the form of a backend for each device"
        yield self.automatic_change(node, subject, said, advice, draft, evidence)


def _is_for_cuda(module: Module, table: ast.Dict, value: ast.expr) -> bool:
    """Whether the key of a value in a dictionary is ``"cuda"`` or ``torch.device("cuda")``."""
    entries = zip(table.keys, table.values, strict=True)
    keys = [key for key, each in entries if each is value and key is not None]
    return any(is_cuda(each) or makes_device(module, each, is_cuda) for each in keys)
