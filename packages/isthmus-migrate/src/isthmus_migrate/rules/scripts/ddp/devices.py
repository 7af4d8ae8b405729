"""Replace fixed devices by the current device, which start_process_group sets for each rank."""

import ast

from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import NotRecognised, Program
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.indices import INDICES
from isthmus_migrate.source.strings import is_formatted, names_cuda, text

_MESSAGE = "each rank has its own device"


def release(program: Program, edits: Edits) -> None:
    """Replace ``"cuda:0"``, ``f"cuda:{gpu}"``, ``x.cuda(0)`` and ``x.to(gpus[0])`` by the current device.

    Raises:
        NotRecognised: a device is selected in another way.
    """
    done: set[ast.AST] = set()
    for node in program.nodes:  # outer nodes first
        if node in done:
            continue
        if is_formatted(node) or (names_cuda(node) and text(node) != "cuda"):
            assert isinstance(node, ast.expr)
            edits.replace(node, _current_device_source(edits, node), _MESSAGE)
            done.update(ast.walk(node))
        elif text(node).startswith("cuda:") and not isinstance(program.parents[node], ast.JoinedStr):
            line: int = node.lineno  # type: ignore[attr-defined]
            raise NotRecognised(line, "the device index is formatted into a string")
        elif isinstance(node, ast.Call):
            _call(program, edits, node)


def _current_device_source(edits: Edits, node: ast.expr) -> str:
    """Return the source of the current device's name, in the quotation marks of a node."""
    quote = "'" if "'" in edits.text(node) and '"' not in edits.text(node) else '"'
    return f"{quote}cuda{quote}"


def _call(program: Program, edits: Edits, call: ast.Call) -> None:
    name = program.qualified(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    first = call.args[0] if call.args else None
    if name == "torch.cuda.set_device" and len(call.args) == 1:
        edits.replace(call.args[0], "LOCAL_RANK", _MESSAGE)
    elif method == "cuda" and first is not None:
        following: list[ast.expr | ast.keyword] = [*call.args[1:], *call.keywords]
        end = min(map(edits.start, following), default=edits.end(first))
        edits.replace_span(edits.start(first), end, "", _MESSAGE, call.lineno)
    elif name == "torch.device" and len(call.args) == 2:
        raise NotRecognised(call.lineno, "the device index is an argument")
    elif method == "to" and first is not None:
        if isinstance(first, ast.Constant | ast.Subscript) and _is_index(first):
            edits.replace(first, '"cuda"', _MESSAGE)
        elif any(map(_is_index, program.origins(first))):
            raise NotRecognised(call.lineno, "the device is a number")


def _is_index(node: ast.expr) -> bool:
    """Whether an expression is a number, or an element of ``gpu_ids``."""
    if isinstance(node, ast.Subscript):
        return INDICES.search(last_name(node.value)) is not None
    return isinstance(node, ast.Constant) and type(node.value) is int
