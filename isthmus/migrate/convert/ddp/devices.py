"""Replace fixed devices by the current device, which start_process_group sets for each rank."""

import ast

from isthmus.migrate.convert.edits import Edits
from isthmus.migrate.convert.program import NotRecognised, Program

_MESSAGE = "each rank has its own device"


def release(program: Program, edits: Edits) -> None:
    """Replace ``"cuda:0"``, ``f"cuda:{gpu}"`` and ``x.cuda(0)`` by the current device.

    Raises:
        NotRecognised: a device is selected in another way.
    """
    for node in program.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            _string(program, edits, node, node.value)
        elif isinstance(node, ast.JoinedStr):
            head = node.values[0] if node.values else None
            if isinstance(head, ast.Constant) and head.value == "cuda:" and len(node.values) == 2:
                edits.replace(node, '"cuda"', _MESSAGE)
        elif isinstance(node, ast.Call):
            _call(program, edits, node)


def _string(program: Program, edits: Edits, node: ast.Constant, text: str) -> None:
    kind, colon, index = text.partition(":")
    if kind != "cuda" or not colon or isinstance(program.parents[node], ast.JoinedStr):
        return
    if not index.isdecimal():
        raise NotRecognised(node.lineno, "the device index is formatted into a string")
    quote = edits.text(node)[0]
    edits.replace(node, f"{quote}cuda{quote}", _MESSAGE)


def _call(program: Program, edits: Edits, call: ast.Call) -> None:
    name = program.qualified(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "torch.cuda.set_device" and len(call.args) == 1:
        edits.replace(call.args[0], "LOCAL_RANK", _MESSAGE)
    elif method == "cuda" and call.args and not call.keywords and len(call.args) == 1:
        edits.replace(call.args[0], "", _MESSAGE)
    elif name == "torch.device" and len(call.args) == 2:
        raise NotRecognised(call.lineno, "the device index is an argument")
    elif method == "to" and call.args and any(map(_is_number, program.origins(call.args[0]))):
        raise NotRecognised(call.lineno, "the device is a number")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int
