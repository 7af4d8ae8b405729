"""The C of checked operations: what the printer asks of a kernel that is debugged."""

from __future__ import annotations

from isthmus_triton.debug.accesses import COMPARED, Accesses, is_float
from isthmus_triton.ttir import Function, Operation, Value

_ARITHMETIC = {"arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul"}


class Checks:
    """Prints checks of a module.

    Args:
        parts: functions of the module.
    """

    def __init__(self, parts: list[Function]) -> None:
        self._accesses = Accesses(parts)

    def _number(self, operation: Operation) -> int:
        return self._accesses.numbers[id(operation)]

    def _arguments(self, operation: Operation) -> str:
        number = self._number(operation)
        return f"{self._accesses.list[number].kind}, {number}"

    def load(self, operation: Operation, pointer: str) -> str:
        """The pointer to load from."""
        return f"CHECKED_LOAD({pointer}, {self._arguments(operation)})"

    def store(self, operation: Operation, pointer: str, code: str, to_memory: str) -> str:
        """The statement of a store."""
        used = f"debug_use({code}); " if is_float(operation.operands[1].type) else ""
        return f"{{ {used}CHECKED_STORE({pointer}, {to_memory}({code}), {self._number(operation)}) }}"

    def atomic(self, operation: Operation, codes: list[str]) -> str:
        """The pointer of an atomic operation, from the codes of its operands."""
        number = self._number(operation)
        kind, element = self._accesses.list[number].kind, operation.operands[1].type.element
        is_exchange = operation.kind == "exch"
        if element in ("f16", "bf16") or not (is_exchange or operation.name == "tt.atomic_cas"):
            code = f"CHECKED_ATOMIC({codes[0]}, {kind}, {number})"
        else:
            kind |= 0 if is_exchange else COMPARED
            code = f"CHECKED_EXCHANGE({codes[0]}, {codes[1]}, {kind}, {number})"
        return f"(debug_use({codes[1]}), {code})" if is_float(operation.operands[1].type) else code

    def arithmetic(self, operation: Operation, codes: list[str], value: Value) -> str | None:
        """32-bit arithmetic of addresses, which notes an overflow; None for other operations."""
        if not value.is_address or id(operation) not in self._accesses.numbers:
            return None
        return f"checked_{_ARITHMETIC[operation.name]}({', '.join(codes)}, {self._number(operation)})"

    def failure(self, operation: Operation) -> str:
        """The call that notes a failed assertion."""
        return f"debug_failed_assertion({self._number(operation)})"
