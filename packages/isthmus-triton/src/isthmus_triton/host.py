"""The target of the host: C of gcc. Threads of OpenMP, whose pool is that of PyTorch, take chunks of a grid."""

from __future__ import annotations

from isthmus_triton.expressions import IN_MEMORY, TO_MEMORY, c_type
from isthmus_triton.ranges import LIMIT
from isthmus_triton.ttir import Operation, Value

_CHUNKS = 64  # pieces of a grid that threads take


class Host:
    """Prints a function ``const char *run(const uint64_t *call)``, which returns null or the text of a failure.

    ``call`` has 8 bytes each for the sizes of the grid and the arguments. ``int wraps(const uint64_t *call)`` tells
    whether 32-bit addresses of such a launch may wrap around.

    Args:
        is_checked: see the attribute; ``run`` then runs the one program that c/debug.c chooses.
    """

    large_storage = "static _Thread_local "
    atomics = frozenset("i8 i16 i32 i64 f16 bf16 f32 f64".split())
    bfloat16_header = '#include "bfloat16.h"'

    def __init__(self, is_checked: bool = False) -> None:
        self.is_checked = is_checked

    def headers(self) -> list[str]:
        """See :class:`isthmus_triton.target.Target`."""
        return ['#include "runtime.h"', *(['#include "debug.h"'] if self.is_checked else [])]

    def failure(self, operation: Operation) -> str:
        """Note the failure, and jump out of the program."""
        place = operation.line.replace("\\", "/")
        return f'failed_assertion("{operation.string()}", "{place}", program_x, program_y, program_z)'

    def entry(self, kernel: str, parameters: list[Value], asserts: bool, bound: str) -> list[str]:
        """See :class:`isthmus_triton.target.Target`."""
        lines = []
        for place, each in enumerate(parameters):
            # A float16 argument comes as float.
            type = c_type(each.type)
            if not each.type.is_pointer and each.type.element not in TO_MEMORY:
                type = IN_MEMORY[each.type.element]
            lines += [f"{type} {each.code}; memcpy(&{each.code}, arguments + {place}, sizeof {each.code});"]
        start = "int at_x = first % x, at_y = first / x % y, at_z = first / (x * y);"
        arguments = "".join(f", {each.code}" for each in parameters)
        call = f"program(at_x, at_y, at_z, (int)x, (int)y, (int)z{arguments});"
        guard = "if (may_begin(failed)) if (!setjmp(end_of_program)) " if asserts else ""
        chunks = [
            *([f'failure* const failed = first_failure("{kernel}");'] if asserts else []),
            f"const int64_t count = x * y * z, chunk = count / {_CHUNKS} > 0 ? count / {_CHUNKS} : 1;",
            "#pragma omp parallel for schedule(dynamic) if (count > 1)",
            "for (int64_t first = 0; first < count; first += chunk) {",
            start,
            "for (int64_t left = count - first < chunk ? count - first : chunk; left > 0; left--) {",
            f"{guard}{call}",
            "if (++at_x == x) at_x = 0, at_y++;",
            "if (at_y == y) at_y = 0, at_z++;",
            "}",
            "}",
        ]
        return [
            "const char *run(const uint64_t *call) {",
            "const int64_t x = call[0], y = call[1], z = call[2];",
            "const uint64_t *arguments = call + 3;",
            *lines,
            *(["const int64_t first = debugger.program;", start, call] if self.is_checked else chunks),
            f"return {'failed->text' if asserts and not self.is_checked else '0'};",
            "}",
            *_wraps(bound),
        ]


HOST, CHECKED_HOST = Host(), Host(is_checked=True)


def _wraps(bound: str) -> list[str]:
    if not bound:
        return []
    return [
        "int wraps(const uint64_t *call) {",
        "const double x = call[0], y = call[1], z = call[2];",
        f"return {bound} >= {LIMIT}.0;",
        "}",
    ]
