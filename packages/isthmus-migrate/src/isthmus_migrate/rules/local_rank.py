"""``--local_rank``, which torch.distributed.launch passed, comes from torchrun's environment."""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_NAMES = ("--local_rank", "--local-rank")
_READ = re.compile(r"\.local_rank\b")
_SAID = "is an argument of the old launcher"


class LocalRank(Rule):
    """The argument ``--local_rank``: kept, with the environment's value as default."""

    code = "IM221"
    name = "local-rank"
    summary = "the local rank is torchrun's LOCAL_RANK; as an argument it works as before"
    before = 'parser.add_argument("--local_rank", type=int, default=0)'
    after = 'parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))'
    words = _NAMES
    anywhere = True

    def find(self, module: Module) -> Iterator[Finding]:
        """Find definitions of the argument without torchrun's variable."""
        for call in module.of(ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
                continue
            name = next((each.value for each in call.args if _is_name(each)), "")  # type: ignore[attr-defined]
            if not name or "LOCAL_RANK" in ast.dump(call):
                continue
            is_taken = "LOCAL_RANK" in module.text or module.around.project.ignores_local_rank
            if is_taken and not _READ.search(module.text):
                yield self.already_portable(
                    module,
                    call,
                    name,
                    _SAID,
                    "stays: the rank comes from the environment's LOCAL_RANK, not from the argument",
                )
            else:
                yield self._end(module, call, name)

    def _end(self, module: Module, call: ast.Call, name: str) -> Finding:
        given = {each.arg: each.value for each in call.keywords}
        required = given.get("required")
        if isinstance(required, ast.Constant) and required.value:
            return self.needs_manual_change(
                module, call, name, f"{_SAID}, and required", f"torchrun does not pass it: {_DEFAULT}"
            )
        default = given.get("default")
        if None in given or not _is_int(given.get("type")) or not (default is None or _is_number(default)):
            return self.undecided(module, call, name, f"{_SAID}; its default is not a number", _DEFAULT)
        draft = Draft(module)
        if default is None:
            draft.argument(call, "default=int(os.environ.get({q}LOCAL_RANK{q}, 0))")
        else:
            start, end = module.start(default), module.end(default)
            draft.insert(call, start, "int(os.environ.get({q}LOCAL_RANK{q}, ").insert(call, end, "))")
        return self.automatic_change(call, name, _SAID, "its default becomes torchrun's LOCAL_RANK", draft)


_DEFAULT = 'let its default be int(os.environ["LOCAL_RANK"])'


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _NAMES


def _is_int(node: ast.expr | None) -> bool:
    """Whether an argument's type is int, or not given."""
    return node is None or (isinstance(node, ast.Name) and node.id == "int")


def _is_number(node: ast.expr) -> bool:
    number = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(number, ast.Constant) and type(number.value) is int
