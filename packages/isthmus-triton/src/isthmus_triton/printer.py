"""Prints tensors as loop nests of C, and what stands between them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from isthmus_triton.analysis import (
    SHAPES,
    Analysis,
    Sharing,
    is_expression,
    loop_order,
    operands_within,
    reached,
    rises_by_1,
    step_along,
)
from isthmus_triton.debug.printing import Checks
from isthmus_triton.expressions import FROM_MEMORY, VALUES, c_type, declaration, expression, literal
from isthmus_triton.nests import PANEL, ZERO, Index, Nest, conditional, linear, masked, reshaped
from isthmus_triton.refusals import refuse
from isthmus_triton.target import Target
from isthmus_triton.ttir import Block, Operation, Type, Value

_WIDTHS = {"f64": 8, "i64": 8, "index": 8, "i1": 1, "i8": 1, "i16": 2}  # bytes; others 4
_ON_STACK = 1 << 18  # bytes; larger arrays are the library's, one per thread
_STACK = 1 << 21  # bytes of all arrays of a function on the stack


@dataclass
class Module:
    """State shared by the functions of a text.

    Attributes:
        target: the dialect of C.
        checks: of a kernel that is debugged.
        helpers: functions of C that programs call, by name.
        names: numbers of names.
    """

    target: Target
    checks: Checks | None = None
    helpers: dict[str, str] = field(default_factory=dict)
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class Printer:
    """The text of a function.

    Args:
        body: of the kernel, or of another function.
        sharing: of its tensors.
        module: that it is a part of.

    Attributes:
        module: that it is a part of.
        checks: the module's.
        lines: printed so far.
        body: the function's.
        outs: C pointers to where the function's results go.
    """

    def __init__(self, body: Block, sharing: Sharing, module: Module) -> None:
        self.body, self.module, self.checks = body, module, module.checks
        self.lines: list[str] = []
        self.outs: list[str] = []
        self._analysis = Analysis(body, sharing)
        self._nest: Nest | None = None
        self._stack_left = _STACK

    # ---- Text

    def name(self, prefix: str) -> str:
        """A new name of C."""
        return f"{prefix}{next(self.module.names)}"

    def write(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def finish_nest(self) -> None:
        """Print the nest that is open."""
        nest, self._nest = self._nest, None
        if nest is not None:
            self.lines += nest.lines()

    def array(self, type: Type, where: list[str] | None = None) -> str:
        """Declare an array for a tensor, and return its name."""
        name, count = self.name("a"), max(type.elements, 16)
        width = 8 if type.is_pointer else _WIDTHS.get(type.element, 4)
        is_on_stack = count * width <= min(_ON_STACK, self._stack_left)
        self._stack_left -= count * width if is_on_stack else 0
        storage = "" if is_on_stack else self.module.target.large_storage
        lines = self.lines if where is None else where
        lines.append(f"{storage}{c_type(type)} {name}[{count}] ALIGNED;")
        return name

    def result_array(self, value: Value) -> str:
        """The array in which a result must end."""
        value.code = value.home or self.array(value.type)
        return value.code

    # ---- Nests

    def open(self, shape: tuple[int, ...], values: list[Value], store: Value | None = None) -> Nest:
        """The nest in which these values can be computed next: the open one, or a new one.

        Args:
            shape: of the nest.
            values: that will be read.
            store: a pointer that will be written.
        """
        read: list[tuple[Value, bool]] = []
        loads: list[Value] = []
        for each in values:
            _find_leaves(each, each.type.shape == shape, read, loads)
        if self._nest is not None and not self._can_join(self._nest, shape, read, loads, store):
            self.finish_nest()
        if self._nest is None:
            self._nest = Nest(shape, loop_order(shape, loads + ([] if store is None else [store])))
        self._nest.loads += loads
        self._nest.is_parallel &= self.checks is None
        return self._nest

    def _can_join(
        self,
        nest: Nest,
        shape: tuple[int, ...],
        read: list[tuple[Value, bool]],
        loads: list[Value],
        store: Value | None,
    ) -> bool:
        if nest.shape != shape or (loads and nest.stores):
            return False
        if any(
            each.number in nest.unfinished and not (same and nest.unfinished[each.number])
            for each, same in read
        ):
            return False
        return store is None or not any(
            self._analysis.may_be_same(each, store) for each in nest.loads + nest.stores
        )

    def require(self, value: Value) -> None:
        """Make a scalar usable outside of nests."""
        if self._nest is not None and value.number in self._nest.unfinished:
            self.finish_nest()

    # ---- Elements

    def element(self, value: Value, index: list[Index], nest: Nest) -> Index:
        """An element of a tensor, or a scalar, as a C expression."""
        if not value.is_tensor:
            return Index(value.code, 0)
        key = (value.number, tuple(each.code for each in index))
        if key not in nest.known:
            nest.known[key] = self._make_element(value, index, nest)
        return nest.known[key]

    def _declare(self, nest: Nest, depth: int, type: Type, code: str) -> Index:
        name = self.name("t")
        nest.before[depth].append(declaration(type, name, code))
        return Index(name, depth)

    def _make_element(self, value: Value, index: list[Index], nest: Nest) -> Index:
        if value.moving:
            first = self.element(value.moving.first, index, nest)
            return self._declare(nest, first.depth, value.type, f"{first.code} + {value.moving.offset}")
        operation = value.operation
        if value.is_stored or operation is None:
            return self._read(value, index, nest)
        moved = _moved(operation, value, index)
        if moved is not None:
            return self.element(operation.operands[0], moved, nest)
        match operation.name:
            case "arith.constant":
                return self._constant(operation, value.type, index, nest)
            case "tt.make_range":
                start = int(operation.attribute("start"))
                return Index(f"({index[0].code} + {start})" if start else index[0].code, index[0].depth)
            case "ub.poison":
                return Index(f"({c_type(value.type)})0", 0)
            case "tt.join":
                a, b = (self.element(each, index[:-1], nest) for each in operation.operands)
                depth = max(a.depth, b.depth, index[-1].depth)
                return self._declare(nest, depth, value.type, f"{index[-1].code} ? {b.code} : {a.code}")
        operands = [self.element(each, index, nest) for each in operation.operands]
        codes = [each.code for each in operands]
        code = (
            self.load(operation, codes)
            if operation.name == "tt.load"
            else self._expression(operation, codes, value)
        )
        if operation.name == "arith.cmpi" and self._note_edge(operation, index, nest):
            code = masked(code)
        return self._declare(nest, max([each.depth for each in operands], default=0), value.type, code)

    def _note_edge(self, operation: Operation, index: list[Index], nest: Nest) -> bool:
        """Note how many leading elements of the innermost loop a comparison holds for, if it does for no others."""
        x, y = operation.operands
        match operation.kind:
            case "sgt":
                x, y = y, x
            case "slt":
                pass
            case _:
                return False
        along = [at for at, each in enumerate(index) if each.code == f"i{nest.innermost}"]
        if len(along) != 1 or not rises_by_1(x, along[0]) or step_along(y, along[0]) != 0:
            return False
        start = [ZERO if at == along[0] else each for at, each in enumerate(index)]
        first, limit = (self.element(each, start, nest) for each in (x, y))
        depth = max(first.depth, limit.depth)
        if depth > nest.order.index(nest.innermost):
            return False
        edge = Index(self.name("edge"), depth)
        nest.before[depth].append(f"int64_t const {edge.code} = (int64_t){limit.code} - {first.code};")
        nest.edges.add(edge.code)
        return True

    def _read(self, value: Value, index: list[Index], nest: Nest) -> Index:
        if not value.code:
            refuse(
                f"a tensor before it is computed ({value.operation.name if value.operation else 'parameter'})"
            )
        at = linear(value.shape, index)
        if value.consecutive and at.depth == len(nest.shape):
            nest.conditions.add(value.consecutive)
            code = conditional(value.consecutive, value.code, at.code)
        else:
            code = f"{value.code}[{at.code}]"
        return self._declare(nest, at.depth, value.type, code)

    def _constant(self, operation: Operation, type: Type, index: list[Index], nest: Nest) -> Index:
        found = re.search(r"dense<(.*?)> : ", operation.text)
        text = found[1] if found else refuse(f"constant {operation.text}")
        if not text.startswith("["):
            return Index(literal(text, type.element), 0)
        numbers = (literal(each, type.element) for each in re.sub(r"[\[\]]", "", text).split(","))
        name = self.name("k")
        nest.before[0].append(f"const {c_type(type)} {name}[] = {{{', '.join(numbers)}}};")
        at = linear(type.shape or (), index)
        return Index(f"{name}[{at.code}]", at.depth)

    def _expression(self, operation: Operation, operands: list[str], value: Value) -> str:
        checked = self.checks and self.checks.arithmetic(operation, operands, value)
        return checked or expression(operation, operands, value)

    def load(self, operation: Operation, operands: list[str]) -> str:
        """The expression of a load: pointer, mask, other."""
        type = operation.result.type
        if "boundaryCheck" in operation.text:
            refuse("a load through a block pointer")
        pointer, *rest = operands
        if type.is_pointer:
            pointer = f"(GLOBAL void *GLOBAL *){pointer}"
        if self.checks:
            pointer = self.checks.load(operation, pointer)
        code = f"({c_type(type)})*{pointer}" if type.is_pointer else f"(*{pointer})"
        code = FROM_MEMORY.get(type.element, "") + code
        if not rest:
            return code
        return f"({rest[0]} ? {code} : {rest[1] if len(rest) > 1 else '0'})"

    # ---- Arrays

    def store_tensor(self, value: Value) -> str:
        """Compute a tensor into an array: its home, or a new one."""
        operation = value.operation
        value.in_bits = not value.home and _is_in_bits(value)
        value.in_panels = not value.home and not value.in_bits and _is_in_panels(value)
        source = _transposed(operation) or value
        if source is not value:  # the loops follow the source's memory
            nest = self.open(source.shape, [source])
            at = nest.index[::-1]
        else:
            value.is_stored = False  # for now: its expression is meant
            nest = self.open(value.shape, [value])
            at = nest.index
        code = self.element(source, nest.index, nest).code
        value.is_stored = True
        place = _in_panels(value, nest, at) if value.in_panels else linear(value.shape, at).code
        nest.unfinished[value.number] = source is value and not value.in_panels
        array = value.home or self.array(value.type._replace(element="i16") if value.in_bits else value.type)
        nest.add(f"{array}[{place}] = " + (f"float_bits({code}) >> 16;" if value.in_bits else f"{code};"))
        return array

    def fill(self, array: str, value: Value) -> None:
        """Copy a tensor into an array."""
        nest = self.open(value.shape, [value])
        code = self.element(value, nest.index, nest).code
        nest.add(f"{array}[{linear(value.shape, nest.index).code}] = {code};")

    # ---- Operations without a statement of their own

    def compute(self, operation: Operation) -> None:
        """Scalars become constants of C; tensors arrays where the analysis says so."""
        if not operation.results:
            refuse(f"operation {operation.name}")
        value = operation.result
        if any(each.is_tensor for each in operation.results):
            for each in operation.results:
                if each.is_stored and not each.code:
                    each.code = self.store_tensor(each)
                    self._note_consecutive(each)
            return
        for each in operation.operands:
            self.require(each)
        operands = [each.code for each in operation.operands]
        match operation.name:
            case "arith.constant":
                value.code = literal(operation.kind, value.type.element)
                return
            case "ub.poison":
                code = f"({c_type(value.type)})0"
            case "tt.split" | "tt.unsplat":
                self._take_elements(operation)
                return
            case "tt.load":
                self.finish_nest()
                code = self.load(operation, operands)
            case "tt.get_program_id":
                code = f"program_{operation.kind}"
            case "tt.get_num_programs":
                code = f"grid_{operation.kind}"
            case _:
                code = self._expression(operation, operands, value)
        value.code = self.name("s")
        self.write(declaration(value.type, value.code, code))

    def _take_elements(self, operation: Operation) -> None:
        """Make the elements of a tensor scalars."""
        source = operation.operands[0]
        array = self.array(source.type)
        self.fill(array, source)
        self.finish_nest()
        for index, each in enumerate(operation.results):
            each.code = self.name("s")
            self.write(declaration(each.type, each.code, f"{array}[{index}]"))

    def _note_consecutive(self, value: Value) -> None:
        """Test once whether indices that come from a remainder are consecutive."""
        if value.type.element not in ("i32", "i64") or not max(value.shape) == value.type.elements > 1:
            return
        if _is_from_remainder(value):
            self.finish_nest()
            flag, array = self.name("consecutive"), value.code
            self.write(f"int {flag} = 1;")
            self.write(
                f"for (int q = 1; q < {value.type.elements}; q++) {flag} &= {array}[q] == {array}[0] + q;"
            )
            value.consecutive = flag

    def combine(self, region: Block, arguments: list[str]) -> tuple[list[str], list[str]]:
        """The combiner of a reduction or a scan: statements, and the results."""
        codes = dict(zip((each.number for each in region.parameters), arguments, strict=True))
        lines: list[str] = []
        for operation in region.operations:
            operands = [codes.get(each.number, each.code) for each in operation.operands]
            if operation.name.endswith(".return"):
                if len(operands) == 1:
                    return lines, operands
                results = [
                    self.name("r") for _ in operands
                ]  # an argument may be overwritten by another result
                for each, name, code in zip(operation.operands, results, operands, strict=True):
                    lines.append(declaration(each.type, name, code))
                return lines, results
            value = operation.result
            if operation.name == "arith.constant":
                codes[value.number] = literal(operation.kind, value.type.element)
                continue
            codes[value.number] = self.name("r")
            lines.append(declaration(value.type, codes[value.number], expression(operation, operands, value)))
        raise ValueError("a combiner of TTIR does not return")


def _find_leaves(
    value: Value, is_same_index: bool, read: list[tuple[Value, bool]], loads: list[Value]
) -> None:
    """Note the scalars and arrays that the expression of a value reads, and the pointers that it loads from."""

    def operands(node: tuple[Value, bool]) -> list[tuple[Value, bool]]:
        value, is_same_index = node
        operation = value.operation
        if value.moving:
            return [(value.moving.first, is_same_index)]
        if not value.is_tensor or value.is_stored or operation is None:
            read.append((value, is_same_index and value.is_tensor))
            return []
        if operation.name == "tt.load":
            loads.append(operation.operands[0])
        same = is_same_index and operation.name not in SHAPES
        return [(each, same) for each in operation.operands]

    for _ in reached((value, is_same_index), operands):
        pass


def _moved(operation: Operation, value: Value, index: list[Index]) -> list[Index] | None:
    """The index in the operand of an operation that only moves elements; None for others."""
    operand = operation.operands[0] if operation.operands else value
    match operation.name:
        case "tt.splat":
            return []
        case "tt.broadcast":
            return [ZERO if size == 1 else each for size, each in zip(operand.shape, index, strict=True)]
        case "tt.expand_dims":
            axis = int(operation.attribute("axis"))
            return index[:axis] + index[axis + 1 :]
        case "tt.trans":
            order = operation.numbers("order")
            return [index[order.index(each)] for each in range(len(order))]
        case "tt.reshape":
            return reshaped(value.shape, operand.shape, index)
        case "tt.split":
            return [*index, Index(str(value.index), 0)]
    return None


def _transposed(operation: Operation | None) -> Value | None:
    """The expression of which an operation is the transpose."""
    if operation is None or operation.name != "tt.trans" or operation.numbers("order") != [1, 0]:
        return None
    return None if operation.operands[0].is_stored else operation.operands[0]


def _is_from_remainder(value: Value) -> bool:
    operations = (each.operation for each in operands_within(value))
    return any(each is not None and each.name in ("arith.remsi", "arith.select") for each in operations)


def _is_in_panels(value: Value) -> bool:
    """Whether the only use is as the second factor of products by the kernel that reads panels."""
    return (
        len(value.shape) == 2
        and value.shape[1] % PANEL == 0
        and VALUES.get(value.type.element) == "float"
        and all(
            user.name == "tt.dot"
            and user.operands[1] is value
            and user.operands[0] is not value
            and user.operands[0].shape[0] % 4 == 0
            for user in value.users
        )
    )


def _is_in_bits(value: Value) -> bool:
    """Whether the only use is as a factor of products by the kernel that reads bfloat16 numbers."""

    def is_factor_alone(value: Value) -> bool:
        return is_expression(value.operation) and all(
            user.name == "tt.dot" and value in user.operands[:2] and value is not user.operands[2]
            for user in value.users
        )

    def fits(product: Operation) -> bool:
        a, b = product.operands[:2]
        return (
            a.type.element == b.type.element == "bf16"
            and product.result.type.element == "f32"
            and len(a.shape) == 2
            and a.shape[0] % 4 == a.shape[1] % 2 == b.shape[1] % 32 == 0
            and is_factor_alone(a)
            and is_factor_alone(b)
        )

    return is_factor_alone(value) and all(fits(user) for user in value.users)


def _in_panels(value: Value, nest: Nest, index: list[Index]) -> str:
    """The place of an element in panels of columns."""
    rows, (row, column) = value.shape[0], index
    if column.depth == len(nest.shape):
        nest.panels.add(int(column.code[1:]))
        return f"j{column.code[1:]} * {rows} + {row.code} * {PANEL} + q"
    return f"{column.code} / {PANEL} * {rows * PANEL} + {row.code} * {PANEL} + {column.code} % {PANEL}"
