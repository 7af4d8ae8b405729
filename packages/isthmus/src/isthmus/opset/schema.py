"""Operator schemas: arguments, results, and the arguments passed to kernels.

The format is PyTorch's (``aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor``). It is parsed
without PyTorch, because operator libraries and the conformance suite do not need it.
"""

import re
from dataclasses import dataclass
from functools import cached_property

# Arguments of these types are not passed to kernels; outputs and context have the same information.
OMITTED_TYPES = frozenset({"ScalarType", "Layout", "Device", "MemoryFormat", "Generator"})
OMITTED_NAMES = frozenset({"pin_memory", "non_blocking"})

_NAME = re.compile(r"(\w+::)?(\w+)(?:\.(\w+))?\(")
_TYPE = re.compile(
    r"(?P<base>\w+)(?P<alias>\([^)]*\))?(?P<inner>\?)?(?P<list>\[(?P<length>\d*)\])?(?P<optional>\?)?$"
)


class SchemaError(ValueError):
    """Invalid schema text."""


@dataclass(frozen=True)
class Argument:
    """One argument or result.

    Attributes:
        name: name in the schema; ``out0``, ``out1`` ... for unnamed results.
        base: element type: Tensor, Scalar, int, float, bool, str, ScalarType, Layout, Device, MemoryFormat,
            Generator. SymInt is int.
        is_list: ``Tensor[]``, ``int[2]``, ``Tensor?[]``.
        optional: may be absent.
        optional_items: items of the list may be absent.
        written: the operator writes to it.
        alias: name of the alias set, or "".
        default: default value as text, or None.
        length: number of items of a list, which one item may stand for; 0 if it is not fixed.
    """

    name: str
    base: str
    is_list: bool = False
    optional: bool = False
    optional_items: bool = False
    written: bool = False
    alias: str = ""
    default: str | None = None
    length: int = 0

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of tensors."""
        return self.base == "Tensor"

    @property
    def omitted(self) -> bool:
        """Whether it is not passed to kernels."""
        return self.base in OMITTED_TYPES or self.name in OMITTED_NAMES


@dataclass(frozen=True)
class Schema:
    """An operator's schema.

    Attributes:
        name: namespace and overload: ``aten::add.Tensor``.
        arguments: all arguments, in order.
        returns: all results.
        text: the parsed text.
    """

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    text: str

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments passed to kernels, in order."""
        return tuple(a for a in self.arguments if not a.omitted)

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        """The outputs passed to kernels after the inputs: results that are not arguments."""
        aliases = {a.alias for a in self.arguments if a.written and a.alias}
        return tuple(r for r in self.returns if r.is_tensor and not (r.alias and r.alias in aliases))

    @property
    def random(self) -> bool:
        """Whether it takes a generator."""
        return any(a.base == "Generator" for a in self.arguments)


def parse(text: str) -> Schema:
    """Parse a schema.

    Raises:
        SchemaError: invalid text.
    """
    head = _NAME.match(text)
    if not head:
        raise SchemaError(f"not a schema (expected name.overload(...) -> ...): {text!r}")
    space, base, overload = head.group(1) or "aten::", head.group(2), head.group(3)
    close = _find_closing(text, head.end() - 1)
    arrow = text[close + 1 :].strip()
    if not arrow.startswith("->"):
        raise SchemaError(f"no '->' after the arguments: {text!r}")
    name = space + base + (f".{overload}" if overload else "")
    arguments = tuple(_argument(part, text) for part in _split(text[head.end() : close]) if part != "*")
    return Schema(name, arguments, _returns(arrow[2:].strip(), text), text)


def _returns(text: str, whole: str) -> tuple[Argument, ...]:
    if text == "()":
        return ()
    parts = _split(text[1:-1]) if text.startswith("(") else [text]
    found = []
    for i, part in enumerate(parts):
        argument = _argument(part if " " in part else f"{part} out{i if len(parts) > 1 else ''}", whole)
        found.append(argument)
    return tuple(found)


def _argument(text: str, whole: str) -> Argument:
    declared, _, rest = text.rpartition(" ") if "=" not in text else _before_default(text)
    name, _, default = rest.partition("=")
    match = _TYPE.match(declared.strip())
    if not match or not name:
        raise SchemaError(f"invalid argument {text!r} in {whole!r}")
    alias = (match["alias"] or "").strip("()")
    is_list = match["list"] is not None
    return Argument(
        name=name,
        base="int" if match["base"] == "SymInt" else match["base"],
        is_list=is_list,
        optional=bool(match["optional"]) or (bool(match["inner"]) and not is_list),
        optional_items=bool(match["inner"]) and is_list,
        written="!" in alias,
        alias=alias.replace("!", "").partition(" ")[0],
        default=default or None,
        length=int(match["length"] or 0),
    )


def _before_default(text: str) -> tuple[str, str, str]:
    head, _, default = text.partition("=")
    declared, space, name = head.rpartition(" ")
    return declared, space, f"{name}={default}"


def _find_closing(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise SchemaError(f"unclosed parenthesis: {text!r}")


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in (*parts, text[start:].strip()) if part]
