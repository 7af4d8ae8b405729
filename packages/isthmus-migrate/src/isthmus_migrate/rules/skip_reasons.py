"""Reasons of skipped tests: one that names what requires CUDA is evidence against a test on every accelerator."""

import ast
import re

from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.cuda_branches import SKIPS, decision
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_PLAIN = frozenset(
    "a accelerator an and are at available backward be but by can cannot capable could cuda device devices does "
    "enabled environment for forward found four gpu gpus has have here in is it least machine model moe more "
    "multiple must need needed needs no not nvidia on one only or pass present require required requires run "
    "runs running skip skipped skipping support supported system t test tests than that the there these this "
    "three to torch training two unavailable unless when with without won".split()
)


def named_need(module: Module, test: ast.expr) -> str:
    """Return the reason of the skip that a test decides on if it names what requires CUDA, else "".

    Args:
        module: the module.
        test: the test, ``torch.cuda.is_available()``.
    """
    skip = decision(module, test).part
    if not isinstance(skip, ast.Call) or last_name(skip.func) not in SKIPS:
        return ""
    given = [*skip.args[1:2], *(each.value for each in skip.keywords if each.arg == "reason")]
    return next(filter(_names_need, map(text, given)), "")


def _names_need(reason: str) -> bool:
    words = re.findall(r"[^\W\d]\w*", reason.lower())
    return "cuda" in words and not _PLAIN.issuperset(words)
