"""``--local_rank``, which torch.distributed.launch passed, comes from torchrun's environment."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.arguments import keyword
from isthmus.migrate.convert.rule import Rule

_NAMES = ("--local_rank", "--local-rank")


class LocalRank(Rule):
    """The argument ``--local_rank``: kept, with the environment's value as default."""

    code = "IM221"
    name = "local-rank"
    summary = "the local rank is torchrun's LOCAL_RANK; as an argument it works as before"
    before = 'parser.add_argument("--local_rank", type=int, default=0)'
    after = 'parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))'
    words = _NAMES

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Set the argument's default."""
        if not m.matches(original_node.func, m.Attribute(attr=m.Name("add_argument"))):
            return updated_node
        if not any(self._is_name(each) for each in original_node.args):
            return updated_node
        given = next((each for each in updated_node.args if _named(each, "default")), None)
        if given is not None and not isinstance(given.value, cst.Integer | cst.UnaryOperation):
            return updated_node
        otherwise = given.value if given is not None else cst.Integer("0")
        self.context.imports.add("os")
        self.note(original_node, "the default is torchrun's LOCAL_RANK")
        value = self.expression('int(os.environ.get("LOCAL_RANK", {otherwise}))', otherwise=otherwise)
        default = keyword("default", value) if given is None else given.with_changes(value=value)
        others = [default if each is given else each for each in updated_node.args]
        return updated_node.with_changes(args=others if given is not None else [*others, default])

    def _is_name(self, argument: cst.Arg) -> bool:
        value = argument.value
        return argument.keyword is None and isinstance(value, cst.SimpleString) and value.raw_value in _NAMES


def _named(argument: cst.Arg, name: str) -> bool:
    return argument.keyword is not None and argument.keyword.value == name
