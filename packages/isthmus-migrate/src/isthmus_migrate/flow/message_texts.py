"""Texts that a project looks for in messages, so that the messages have to stay, and those that it raises itself."""

import ast
from collections.abc import Iterator

from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_MEMORY = "CUDA out of memory"


def tested_texts(module: Module) -> set[str]:
    """Return the texts about CUDA that a module compares others with.

    These are patterns, ``pytest.raises(match="...")`` and ``assertRaisesRegex(Error, "...")``, and the texts of
    ``"..." in str(error)``.
    """
    if not module.mentions("match", "assert", " in "):
        return set()
    return {
        each for each in map(text, _comparison_operands(module)) if " " in each and "cuda" in each.lower()
    }


def raised_texts(module: Module) -> set[str]:
    """Return the texts of a module's own errors, of classes other than PyTorch's, that speak of CUDA's memory."""
    if not module.mentions(_MEMORY):
        return set()
    made = [each.exc for each in module.of(ast.Raise) if isinstance(each.exc, ast.Call)]
    own = (each for each in made if last_name(each.func) != "OutOfMemoryError")
    return {text(node) for each in own for node in ast.walk(each) if _MEMORY in text(node)}


def _comparison_operands(module: Module) -> Iterator[ast.expr]:
    yield from (each.value for each in module.of(ast.keyword) if each.arg == "match")
    for compare in module.of(ast.Compare):
        yield compare.left
        yield from compare.comparators
    for call in module.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("assert"):
            yield from call.args
