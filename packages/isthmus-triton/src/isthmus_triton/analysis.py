"""Which tensors become arrays, and what may share a loop.

A tensor is an expression of the indices, printed again wherever it is read, until that costs more than an array.
Roots (stores, reductions, products ...) are computed where they stand; all between two roots is an expression.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from isthmus_triton.ttir import Block, Operation, Value

SHAPES = frozenset("tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans tt.join tt.split".split())
_LEAVES = frozenset(("tt.make_range", "arith.constant"))
_COSTLY = frozenset(
    "tt.load arith.divf arith.remf arith.divsi arith.divui arith.remsi arith.remui tt.precise_sqrt tt.precise_divf "
    "tt.extern_elementwise tt.mulhiui".split()
)
ROOTS = frozenset(
    "tt.store tt.reduce tt.scan tt.dot tt.dot_scaled tt.atomic_rmw tt.atomic_cas scf.for scf.if scf.while "
    "tt.histogram tt.gather tt.cat tt.call tt.map_elementwise scf.yield scf.condition cf.br cf.cond_br label".split()
)
_PLAIN = frozenset("f32 f64 bf16 i8 i16 i32 i64".split())  # elements that are read without much ado
_OFFSETS = frozenset(
    "tt.make_range tt.splat tt.broadcast tt.expand_dims arith.constant arith.addi arith.extsi".split()
)
_LOOPS = ("scf.for", "scf.if", "scf.while")
_WRITES = frozenset("tt.store tt.atomic_rmw tt.atomic_cas tt.call gpu.barrier ttg.barrier".split())
ADDRESSES = frozenset("tt.addptr tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans tt.bitcast".split())
_LONGEST = 60  # operations in one expression
_SHORT = 8  # operations that each half of a tensor may repeat
Node = TypeVar("Node", bound=Hashable)


class Sharing(enum.Enum):
    """How the tensors of a launch share memory.

    Attributes:
        NOTHING: different arguments are different memory.
        WHOLE: arguments are different memory, or begin at the same address.
        PARTS: any two may overlap anywhere.
    """

    NOTHING = "nothing"
    WHOLE = "whole"
    PARTS = "parts"


def is_expression(operation: Operation | None) -> bool:
    """Whether its results are printed where they are read."""
    return operation is not None and operation.name not in ROOTS


def writes(operation: Operation) -> bool:
    """Whether it, or anything in its regions, writes memory."""
    return operation.name in _WRITES or any(
        writes(each) for region in operation.regions for each in region.operations
    )


def walk(block: Block) -> Iterator[Operation]:
    """All operations of a block and of the regions within."""
    for operation in block.operations:
        yield operation
        for region in operation.regions:
            yield from walk(region)


def mark_addresses(body: Block) -> None:
    """Integers that only feed addresses are printed signed: C's compiler then sees that they are consecutive."""
    left = [each.operands[1] for each in walk(body) if each.name == "tt.addptr"]
    while left:
        value = left.pop()
        if value.is_address or value.operation is None:
            continue
        value.is_address = value.type.element in ("i32", "i64")
        name = value.operation.name
        if name in ("arith.addi", "arith.muli", "arith.subi", "arith.extsi") or name in SHAPES:
            left += value.operation.operands


class Analysis:
    """Decides for a kernel; see the module.

    Args:
        body: of the kernel.
        sharing: of its tensors.
    """

    def __init__(self, body: Block, sharing: Sharing) -> None:
        self._body, self._sharing = body, sharing
        mark_addresses(body)
        self._decide_in(body)

    # ---- Memory

    def may_be_same(self, one: Value, other: Value) -> bool:
        """Whether two pointers may point to the same memory at different indices."""
        if one is other:
            return False
        first, second = _base(one), _base(other)
        known = self._body.parameters
        if first is second or first not in known or second not in known or self._sharing is Sharing.PARTS:
            return True
        return self._sharing is Sharing.WHOLE and not _is_same_offset(one, other)

    # ---- Arrays

    def _decide_in(self, block: Block) -> None:
        for operation in block.operations:
            if operation.name not in ("tt.reduce", "tt.scan"):  # their regions compute with scalars
                for region in operation.regions:
                    self._decide_in(region)
            for result in operation.results:
                self._estimate(operation, result)
        for operation in reversed(block.operations):
            for result in operation.results:
                if result.is_tensor:
                    result.is_stored = operation.name in ROOTS
                    if not result.is_stored:
                        self._decide(operation, result)
        for operation in block.operations:
            for result in operation.results:
                if result.is_tensor and is_expression(operation):
                    result.is_costly = result.is_costly_itself or any(
                        each.is_tensor and not each.is_stored and each.is_costly
                        for each in operation.operands
                    )
                    result.is_stored &= result.is_costly or result.must_be_stored

    @staticmethod
    def _estimate(operation: Operation, result: Value) -> None:
        if not result.is_tensor:
            return
        name = operation.name
        result.is_costly_itself = name in _COSTLY or (name.startswith("math.") and name != "math.absf")
        tensors = [each for each in operation.operands if each.is_tensor]
        result.is_costly = result.is_costly_itself
        if is_expression(operation):
            result.is_costly |= any(each.is_costly for each in tensors)
            result.size = 1 + sum(each.size for each in tensors)
        if result.size > _LONGEST:
            result.is_costly = result.is_costly_itself = True
            result.size = 1
        elif name == "tt.load":
            result.is_cheap = _is_cheap(operation)
        else:
            result.is_cheap = not result.is_costly_itself and all(
                each.is_cheap for each in tensors if each.is_costly
            )

    def _decide(self, operation: Operation, value: Value) -> None:
        users = value.users
        is_factor = any(each.name == "tt.dot" and value in each.operands[:2] for each in users)
        is_carried = any(each.name in ("scf.yield", "scf.condition") for each in users) and len(users) > 1
        is_indexed = any(each.name in ("tt.gather", "tt.histogram", "tt.cat") for each in users)
        is_halved = any(each.name == "tt.split" for each in users) and value.size > _SHORT
        is_leaf = operation.name in _LEAVES or operation.name == "tt.splat"
        if is_factor or is_indexed or is_halved or (is_carried and not is_leaf):
            value.is_stored = value.must_be_stored = True
        elif value.is_costly:
            roots = _roots(value)
            is_read_twice = len({id(root) for root, _ in roots}) > 1
            is_read_elsewhere = any(root.block is not operation.block for root, _ in roots)
            is_repeated = any(not same for _, same in roots) and _is_broadcast(value)
            value.is_stored = (
                is_read_elsewhere
                or (not value.is_cheap and (is_read_twice or is_repeated))
                or self._is_written_before(operation, value, roots)
            )

    def _is_written_before(
        self, operation: Operation, value: Value, roots: set[tuple[Operation, bool]]
    ) -> bool:
        """Whether memory that the value's expression reads may be written before the expression is printed."""
        loads = _loads(value)
        for root, _ in roots if loads else ():
            between = operation.block.operations[operation.position + 1 : root.position]
            if any(writes(each) for each in between) or (root.name in _LOOPS and writes(root)):
                return True
            if root.name in _WRITES and any(self.may_be_same(root.operands[0], each) for each in loads):
                return True
        return False


def _base(pointer: Value) -> Value:
    """The value from which a pointer was computed by offsets alone."""
    while True:
        if pointer.moving:
            pointer = pointer.moving.first
        elif pointer.operation is None or pointer.operation.name not in ADDRESSES:
            return pointer
        else:
            pointer = pointer.operation.operands[0]


def _is_same_offset(one: Value, other: Value) -> bool:
    """Whether two pointers are the same but for their arguments."""
    if one is other:
        return True
    if one.moving or other.moving:
        return False
    a, b = one.operation, other.operation
    if a is None or b is None:
        return a is b and one.type.is_pointer and other.type.is_pointer
    return (
        a.name == b.name
        and a.name in ADDRESSES
        and one.type.shape == other.type.shape
        and a.numbers("order") == b.numbers("order")
        and _is_same_offset(a.operands[0], b.operands[0])
        and a.operands[1:] == b.operands[1:]
    )


def reached(start: Node, following: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield a node and all that follow it, each once."""
    seen, left = set(), [start]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            yield node
            left += following(node)


def _roots(value: Value) -> set[tuple[Operation, bool]]:
    """The roots that read a value, and whether each reads it at the value's own index."""
    found: set[tuple[Operation, bool]] = set()

    def readers(node: tuple[Value, bool]) -> Iterator[tuple[Value, bool]]:
        value, is_same_index = node
        for user in value.users:
            expressions = user.results if is_expression(user) else []
            still = is_same_index and user.name not in SHAPES
            yield from ((each, still) for each in expressions if each.is_tensor and not each.is_stored)
            if not expressions:
                found.add((user, is_same_index))
            elif any(each.is_stored or not each.is_tensor for each in expressions):
                found.add((user, still))

    for _ in reached((value, True), readers):
        pass
    return found


def _is_broadcast(value: Value) -> bool:
    """Whether any reader repeats the value along a dimension."""

    def readers(value: Value) -> Iterator[Value]:
        expressions = (user for user in value.users if is_expression(user))
        return (each for user in expressions for each in user.results if not each.is_stored)

    return any(user.name == "tt.broadcast" for each in reached(value, readers) for user in each.users)


def operands_within(value: Value) -> Iterator[Value]:
    """The values of an expression: itself, and what it is computed from up to arrays and scalars."""

    def operands(value: Value) -> list[Value]:
        if value.operation is None or not is_expression(value.operation):
            return []
        return [each for each in value.operation.operands if each.is_tensor and not each.is_stored]

    return reached(value, operands)


def _loads(value: Value) -> list[Value]:
    """The pointers that the expression of a value reads."""
    operations = (each.operation for each in operands_within(value))
    return [each.operands[0] for each in operations if each is not None and each.name == "tt.load"]


# ---- The order of loops --------------------------------------------------------------------------------------------


def loop_order(shape: tuple[int, ...], pointers: list[Value]) -> list[int]:
    """Dimensions from the outermost loop inwards: the one along which most pointers are consecutive is innermost."""
    order = list(range(len(shape)))
    if len(shape) != 2 or 1 in shape:
        return order
    votes = 0
    for pointer in pointers:
        if pointer.shape == shape:
            rows, columns = step_along(pointer, 0), step_along(pointer, 1)
            votes += -1 if columns == 1 else 1 if rows == 1 else 0
    return order[::-1] if votes > 0 else order


def step_along(
    value: Value, dimension: int, known: dict[tuple[int, int], int | None] | None = None
) -> int | None:
    """The difference of neighbours along a dimension; None if that is not plain.

    Args:
        value: a tensor, or a scalar.
        dimension: of the tensor.
        known: results by value and dimension: a network of shared values has exponentially many paths.
    """
    known = {} if known is None else known
    key = value.number, dimension
    if key not in known:
        known[key] = _find_step(value, dimension, known)
    return known[key]


def _find_step(value: Value, dimension: int, known: dict[tuple[int, int], int | None]) -> int | None:
    if not value.is_tensor or value.shape[dimension] == 1:
        return 0
    if value.moving:
        return step_along(value.moving.first, dimension, known)
    operation = value.operation
    if operation is None or not is_expression(operation):
        return None
    match operation.name:
        case "tt.make_range":
            return 1
        case "tt.splat" | "arith.constant":
            return 0
        case "tt.broadcast" | "arith.extsi" | "arith.extui" | "arith.remsi" | "tt.bitcast":
            return step_along(operation.operands[0], dimension, known)
        case "tt.expand_dims":
            axis = int(operation.attribute("axis"))
            return (
                0
                if dimension == axis
                else step_along(operation.operands[0], dimension - (dimension > axis), known)
            )
        case "tt.trans":
            return step_along(operation.operands[0], operation.numbers("order")[dimension], known)
    if operation.name in SHAPES:
        return None
    steps = [step_along(each, dimension, known) for each in operation.operands]
    if operation.name in ("arith.addi", "tt.addptr") and None not in steps:
        return sum(each for each in steps if each is not None)
    return 0 if all(each == 0 for each in steps) else None


def rises_by_1(value: Value, dimension: int) -> bool:
    """Whether integers rise by 1 along a dimension and do not wrap around."""
    operations = (each.operation for each in operands_within(value))
    return step_along(value, dimension) == 1 and all(
        each is not None and each.name in _OFFSETS and (each.name != "arith.addi" or each.result.is_address)
        for each in operations
    )


def _is_cheap(load: Operation) -> bool:
    """Whether a load may be repeated: of consecutive elements, which stay in the cache."""
    pointer = load.operands[0]
    along = [at for at, size in enumerate(pointer.shape) if size > 1]
    return (
        len(along) == 1
        and step_along(pointer, along[0]) == 1
        and pointer.type.element in _PLAIN
        and "isVolatile = true" not in load.text
    )
