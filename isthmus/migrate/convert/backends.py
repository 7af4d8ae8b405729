"""Names of collective backends in a source."""

import re

import libcst as cst
import libcst.matchers as m

DEFAULT = "torch.distributed.get_default_backend_for_device({device})"
AVAILABLE = (
    "torch.cuda.is_available",
    "torch.accelerator.is_available",
    "torch.distributed.is_nccl_available",
)
_PAIRS = re.compile(r"(\w+:\w+)(,\w+:\w+)+")


def is_nccl(node: cst.CSTNode) -> bool:
    """Whether a node is the string ``"nccl"``."""
    return isinstance(node, cst.SimpleString) and node.prefix == "" and node.raw_value == "nccl"


def is_gloo(node: cst.CSTNode) -> bool:
    """Whether a node is the string ``"gloo"``."""
    return isinstance(node, cst.SimpleString) and node.prefix == "" and node.raw_value == "gloo"


def pairs(node: cst.CSTNode) -> list[str]:
    """Return ``["cuda:nccl", "cpu:gloo"]`` for a string with both; empty for any other node."""
    if not isinstance(node, cst.SimpleString) or node.prefix or not _PAIRS.fullmatch(node.raw_value):
        return []
    found = node.raw_value.split(",")
    return found if "cuda:nccl" in found else []


# Contexts in which a string is text, a key, or a type.
_WORDS = m.OneOf(
    m.Expr(), m.DictElement(), m.SubscriptElement(), m.Index(), m.ConcatenatedString(), m.MatchValue()
)
_SAYS = {"help", "description", "metavar", "title", "name"}
_PRINTS = ("print", "debug", "info", "warning", "error", "log", "get", "pop", "setdefault", "startswith")


def is_word(node: cst.CSTNode, parent: cst.CSTNode, holder: cst.CSTNode) -> bool:
    """Whether a string is used as something else than the name of a backend.

    Args:
        node: the string.
        parent: its parent.
        holder: the parent of ``parent``.
    """
    if isinstance(parent, cst.DictElement):
        return parent.value is not node
    if m.matches(parent, _WORDS):
        return True
    if not isinstance(parent, cst.Arg) or not isinstance(holder, cst.Call):
        return False
    function = holder.func.attr if isinstance(holder.func, cst.Attribute) else holder.func
    said = isinstance(function, cst.Name) and function.value in _PRINTS
    return said or (parent.keyword is not None and parent.keyword.value in _SAYS)
