"""TTIR, Triton's intermediate representation, read from the text that Triton prints: one operation per line."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Type(NamedTuple):
    """The type of a value.

    Attributes:
        shape: None for a scalar.
        element: as in the text: ``f32``, ``i1``, ``index`` ...
        is_pointer: the elements are pointers to ``element``.
    """

    shape: tuple[int, ...] | None
    element: str
    is_pointer: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape or ())


class Moving(NamedTuple):
    """A tensor carried by a loop that only moves by a scalar: its first value, and the C variable to add."""

    first: Value
    offset: str


_numbers = itertools.count(1)


@dataclass(eq=False)
class Value:
    """A result of an operation, or a parameter of a block.

    Attributes:
        type: its type.
        operation: that defines it; None for a parameter.
        index: among the results of the operation.
        users: the operations that read it, one entry per reading.
        code: the C expression of a scalar, or the C array of a stored tensor.
        is_stored: the tensor becomes an array.
        must_be_stored: it stays one even when its operands became arrays.
        is_costly: printing it again costs much, by itself or by its operands.
        is_costly_itself: by its own operation.
        is_cheap: it costs no more than loads of consecutive elements.
        size: operations in its expression.
        is_address: an integer that only feeds addresses.
        in_panels: the array holds panels of 32 columns.
        in_bits: the array holds bfloat16 numbers as in memory.
        consecutive: a C flag: the array holds consecutive integers.
        moving: see Moving.
        home: the array in which the value must end.
    """

    type: Type
    operation: Operation | None = None
    index: int = 0
    users: list[Operation] = field(default_factory=list)
    code: str = ""
    is_stored: bool = False
    must_be_stored: bool = False
    is_costly: bool = False
    is_costly_itself: bool = False
    is_cheap: bool = False
    size: int = 1
    is_address: bool = False
    in_panels: bool = False
    in_bits: bool = False
    consecutive: str = ""
    moving: Moving | None = None
    home: str = ""
    number: int = field(default_factory=_numbers.__next__)

    @property
    def is_tensor(self) -> bool:
        """Whether it has a shape."""
        return self.type.shape is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor; () for a scalar."""
        return self.type.shape or ()


@dataclass(eq=False)
class Operation:
    """A line of a block.

    Attributes:
        name: with its dialect: ``arith.addf``.
        block: that holds it.
        position: in the block.
        text: the line, from the name on.
        operands: what it reads.
        results: what it defines.
        regions: blocks within it.
        targets: of a branch: label and number of its operands.
        line: of the source: ``file:line``, or "".
    """

    name: str
    block: Block
    position: int
    text: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    regions: list[Block] = field(default_factory=list)
    targets: list[tuple[str, int]] = field(default_factory=list)
    line: str = ""

    @property
    def result(self) -> Value:
        """Its first result."""
        return self.results[0]

    @property
    def head(self) -> str:
        """Its text without name and types."""
        rest = self.text[len(_name_in(self.text)) :]
        at = _type_at(rest)
        return rest if at is None else rest[:at]

    @property
    def kind(self) -> str:
        """The first word after the name: a predicate, an update, an axis, a number."""
        return self.head.partition(",")[0].strip()

    def jumps(self) -> Iterator[tuple[Operation, list[Value]]]:
        """The labels that a branch goes to, and the values that it brings."""
        at = int(len(self.targets) > 1)  # a condition comes first
        for name, count in self.targets:
            labels = (each for each in self.block.operations if each.name == "label" and each.text == name)
            yield next(labels), self.operands[at : at + count]
            at += count

    def attribute(self, name: str) -> str:
        """The value of ``name = value``; "" without it."""
        found = re.search(rf"\b{name} = ([^,}}>]+)", self.text)
        return found[1].split(":")[0].strip() if found else ""

    def numbers(self, name: str) -> list[int]:
        """The value of ``name = array<i32: ...>``; [] without it."""
        found = re.search(rf"{name} = array<i32: ([^>]*)>", self.text)
        return [int(each) for each in found[1].split(",")] if found else []

    def string(self) -> str:
        """The first quoted text after the name."""
        found = re.search(r'"(.*?)"', self.text[len(_name_in(self.text)) :])
        return found[1] if found else ""


@dataclass(eq=False)
class Block:
    """Operations, and the names that they see.

    Attributes:
        outer: the block around it.
        parameters: values that its operation gives.
        operations: in order.
        names: values defined here, by their names in the text.
    """

    outer: Block | None = None
    parameters: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    names: dict[str, Value] = field(default_factory=dict)

    @property
    def yielded(self) -> list[Value]:
        """The values that the block of a loop or a branch passes on, the condition of a loop included."""
        last = self.operations[-1:]
        return last[0].operands if last and last[0].name in ("scf.yield", "scf.condition") else []

    def find(self, name: str) -> Value:
        """The value of a name that is visible here."""
        return self.names[name] if name in self.names or self.outer is None else self.outer.find(name)

    def add_parameter(self, name: str, type: Type) -> None:
        """Define the next parameter."""
        self.parameters.append(Value(type))
        self.names[name.strip()] = self.parameters[-1]


class Function(NamedTuple):
    """A function of the module.

    Attributes:
        name: its name.
        body: its parameters and operations.
        results: types of what it returns.
        is_public: whether it is the kernel.
    """

    name: str
    body: Block
    results: list[Type]
    is_public: bool


def read(text: str) -> list[Function]:
    """Read a module.

    Raises:
        ValueError: a line is none that Triton prints.
    """
    return _Reader(text).functions()


def parse_type(text: str) -> Type:
    """Read a type."""
    text = text.strip()
    if tensor := re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", text):
        sizes = tuple(int(each) for each in tensor[1].split("x") if each)
        return parse_type(tensor[2])._replace(shape=sizes)
    if text.startswith("!tt.ptr<"):
        return Type(None, _split(text[8:-1])[0], is_pointer=True)
    return Type(None, text)


# ---- Text --------------------------------------------------------------------------------------------------------

_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)$")
_FOR = re.compile(
    r" (?:unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+) (?:iter_args\((.*)\) -> \((.*)\) )?(?: *: (\w+) )?\{$"
)


def _name_in(text: str) -> str:
    """The name of an operation, with its quotes."""
    found = re.match(r'"?[\w.]+"?', text)
    return found[0] if found else ""


def _depths(text: str) -> list[tuple[str, int]]:
    """Each character and the number of brackets and quotes around it."""
    depth, is_quoted, found = 0, False, []
    for before, each in zip(" " + text, text, strict=False):
        if each == '"':
            is_quoted = not is_quoted
        if not is_quoted:
            depth -= each in ")]}" or (each == ">" and before != "-")
        found.append((each, depth + is_quoted))
        if not is_quoted:
            depth += each in "<([{"
    return found


def _split(text: str) -> list[str]:
    """Its parts between commas outside of brackets."""
    parts, start = [], 0
    for at, (each, depth) in enumerate(_depths(text)):
        if each == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [each for each in (*parts, text[start:].strip()) if each]


def _type_at(text: str) -> int | None:
    """Where " : " separates operands from types."""
    depths = _depths(text)
    return next(
        (at for at, (_, depth) in enumerate(depths) if depth == 0 and text.startswith(" : ", at)), None
    )


def _types(text: str) -> list[Type]:
    """Types in parentheses, or one."""
    text = text.strip()
    return [parse_type(each) for each in _split(text[1:-1] if text.startswith("(") else text)]


def _result_types(name: str, text: str) -> list[Type]:
    """The types of the results, from the types that the line states."""
    if "->" in text:
        found = _types(text[text.rindex("->") + 2 :])
        return found * 2 if name == "tt.split" else found
    if " to " in text:
        return [parse_type(text.split(" to ")[1])]
    types = [parse_type(each) for each in _split(text)]
    if not types:  # arith.constant true
        return [Type(None, "i1")]
    if name in ("arith.cmpi", "arith.cmpf"):
        return [Type(types[0].shape, "i1")]
    if name == "arith.select":
        return types[-1:]
    if name == "tt.load":
        return [parse_type(types[0].element)._replace(shape=types[0].shape)]
    if name == "tt.split":
        return [types[0]._replace(shape=(types[0].shape or ())[:-1] or None)] * 2
    if name == "tt.unsplat":
        return [types[0]._replace(shape=None)]
    return types[:1]


class _Reader:
    """Reads lines from the first to the last."""

    def __init__(self, text: str) -> None:
        self._locations = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE))
        lines = (line.strip() for line in text.splitlines())
        self._lines = iter([line for line in lines if line and not line.startswith("#")])
        self._end: re.Match[str] | None = None  # the location at the end of the last region

    def functions(self) -> list[Function]:
        found = []
        for line in self._lines:
            start = re.match(
                r"tt\.func (\w+ )?@(\"[^\"]*\"|[\w$.-]+)\((.*?)\)(?: -> (.*?))? (?:attributes .*)?\{$",
                _LOCATION.sub("", line),
            )
            if start:
                body = Block()
                for each in _split(start[3]):
                    name, type = each.split(":", 1)
                    body.add_parameter(name, parse_type(re.sub(r"( loc\(.*\)| *\{.*\})", "", type)))
                self._read_block(body)
                results = _types(start[4] or "")
                found.append(Function(start[2], body, results, start[1] == "public "))
        return found

    def _read_block(self, block: Block) -> str:
        """Read operations to the end of the block, and return its last line."""
        for line in self._lines:
            if line.startswith("}"):
                self._end = _LOCATION.search(line)
                return _LOCATION.sub("", line)
            if line.startswith("^bb"):
                self._read_label(block, line)
            else:
                self._read_operation(block, line)
        raise ValueError("a block of TTIR does not end")

    def _read_label(self, block: Block, line: str) -> None:
        """A label, whose parameters are variables; the first of a region names its parameters."""
        inside = (
            line[line.index("(") + 1 : line.rindex(")")] if "(" in line.split("//", maxsplit=1)[0] else ""
        )
        parameters = [_LOCATION.sub("", each).split(":", 1) for each in _split(inside)]
        if block.outer is not None and not block.operations:
            for name, type in parameters:
                block.add_parameter(name, parse_type(type))
            return
        label = Operation("label", block, len(block.operations), re.match(r"\^(\w+)", line)[1])  # type: ignore[index]
        block.operations.append(label)
        self._define(
            label, [name.strip() for name, _ in parameters], [parse_type(type) for _, type in parameters]
        )

    def _read_operation(self, block: Block, line: str) -> None:
        place = _LOCATION.search(line)
        line = line[: place.start()] if place else line
        names, text = [], line
        if defined := re.match(r"(%[^=(]*?) = (.*)$", line):
            names, text = [each.strip() for each in defined[1].split(",")], defined[2]
        quoted = _name_in(text)
        operation = Operation(quoted.strip('"'), block, len(block.operations), text)
        block.operations.append(operation)
        read = getattr(self, "_read_" + operation.name.replace(".", "_"), None)
        rest = text[len(quoted) :]
        if read is None:
            read = self._read_with_region if text.endswith("({") else self._read_simple
        self._define(operation, names, read(operation, rest))
        place = self._end if operation.regions else place
        operation.line = self._line_of(place[0][5:-1]) if place else ""

    def _line_of(self, location: str) -> str:
        """``file:line`` of a location; of a call, that of the called line."""
        for _ in range(16):
            if place := re.match(r'(?:.*?)"([^"]*)":(\d+):\d+', location):
                return f"{place[1]}:{place[2]}"
            name = re.search(r"#loc\d*", location)
            if name is None:
                return ""
            location = self._locations.get(name[0], "")
        return ""

    @staticmethod
    def _use(operation: Operation, names: list[str]) -> None:
        for name in names:
            value = operation.block.find(name)
            operation.operands.append(value)
            value.users.append(operation)

    @staticmethod
    def _define(operation: Operation, names: list[str], types: list[Type]) -> None:
        operation.results = [Value(each, operation, index) for index, each in enumerate(types)]
        if len(names) == 1 and ":" in names[0]:
            name = names[0].split(":")[0]
            names = [f"{name}#{index}" for index in range(len(types))]
        operation.block.names.update(zip(names, operation.results, strict=False))

    def _inner(self, operation: Operation) -> Block:
        operation.regions.append(Block(operation.block))
        return operation.regions[-1]

    def _carry(self, operation: Operation, block: Block, pairs: str, types: list[Type]) -> None:
        """Parameters of a loop's block, and their first values."""
        for pair, type in zip(_split(pairs), types, strict=True):
            name, first = pair.split("=")
            self._use(operation, [first.strip()])
            block.add_parameter(name, type)

    def _read_scf_for(self, operation: Operation, rest: str) -> list[Type]:
        found = _FOR.match(rest)
        if found is None:
            raise ValueError(f"TTIR: {operation.text}")
        self._use(operation, list(found.groups()[1:4]))
        inner = self._inner(operation)
        inner.add_parameter(found[1], parse_type(found[7] or "index"))
        types = [parse_type(each) for each in _split(found[6] or "")]
        self._carry(operation, inner, found[5] or "", types)
        operation.text += self._read_block(inner)
        return types

    def _read_scf_if(self, operation: Operation, rest: str) -> list[Type]:
        self._use(operation, rest.split()[:1])
        types = re.search(r"-> \((.*)\) \{", rest)
        if self._read_block(self._inner(operation)).startswith("} else"):
            self._read_block(self._inner(operation))
        return _types(types[1]) if types else []

    def _read_scf_while(self, operation: Operation, rest: str) -> list[Type]:
        found = re.match(r" (?:\((.*?)\) )?: \((.*)\) -> (.*) \{$", rest)
        if found is None:
            raise ValueError(f"TTIR: {operation.text}")
        before, after = self._inner(operation), self._inner(operation)
        self._carry(operation, before, found[1] or "", [parse_type(each) for each in _split(found[2])])
        self._read_block(before)
        self._read_block(after)
        return _types(found[3])

    def _read_with_region(self, operation: Operation, rest: str) -> list[Type]:
        self._use(operation, _VALUE.findall(rest[: rest.index(")")]))
        end = self._read_block(self._inner(operation))
        return _types(end[end.rindex("->") + 2 :])

    def _read_cf_br(self, operation: Operation, rest: str) -> list[Type]:
        self._use(operation, _VALUE.findall(rest))
        operation.targets = [
            (label, len(_VALUE.findall(operands)))
            for label, operands in re.findall(r"\^(\w+)(\([^)]*\))?", rest)
        ]
        return []

    _read_cf_cond_br = _read_cf_br

    def _read_tt_print(self, operation: Operation, rest: str) -> list[Type]:
        """Text and attributes, then the operands between two colons."""
        at = _type_at(rest)
        self._use(operation, [] if at is None else _VALUE.findall(rest[at:]))
        return []

    def _read_simple(self, operation: Operation, rest: str) -> list[Type]:
        at = _type_at(rest)
        head, types = (rest, "") if at is None else (rest[:at], rest[at + 3 :])
        self._use(operation, _VALUE.findall(re.sub(r'"[^"]*"', "", head)))
        return _result_types(operation.name, types.strip())
