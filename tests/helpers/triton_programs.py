"""Random Triton kernels: chains of element-wise operations, reductions, masks, loops and conversions."""

from __future__ import annotations

import linecache
import random

import torch
import triton
import triton.language as tl

BLOCK = 64
_BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "tl.minimum({a}, {b})", "tl.maximum({a}, {b})",
    "tl.where({a} > {b}, {a}, {b} + 1)",
)  # fmt: skip
_UNARY = ("-{a}", "tl.abs({a})", "{a} * 2", "{a} + 3", "tl.where(at % 3 == 1, {a}, 0)")
_INTEGERS = (
    "{a} & {b}", "{a} | {b}", "{a} ^ {b}", "{a} >> ({b} & 3)", "{a} << ({b} & 3)", "{a} % (tl.abs({b} >> 8) + 1)",
    "{a} // (tl.abs({b} >> 8) + 1)",
)  # fmt: skip
_MOVED = (
    "tl.reshape(tl.trans(tl.reshape({a}, (4, BLOCK // 4))), (BLOCK,))",
    "tl.gather({a}, (at * 5 + 3) % BLOCK, 0)",
    "tl.load(y + (at * 3 + 1) % BLOCK).to({a}.dtype) + {a}",
    "tl.load(y + BLOCK - 1 - at, mask=at % 2 == 0, other={one}).to({a}.dtype) + {a}",
    "tl.split(tl.join({a}, {b}))[1]",
    "tl.flip({a}, 0)",
)
_ROWS = ("tl.sum({a}, 0)", "tl.max({a}, 0)", "tl.min({a}, 0)")
_BLOCKS = ("tl.sum({a}, {d})", "tl.max({a}, {d})", "tl.min({a}, {d})")
_PLACES = ("tl.argmax({a}, 0)", "tl.argmin({a}, 0)")
_UPDATES = ("add", "max", "min", "and", "or", "xor")
_DTYPES = {
    **{each: each for each in ("float32", "float64", "int32", "int64", "int16", "int8", "uint8")},
    "float8_e5m2": "float32",  # stored -> computed
    "float8_e4m3fn": "float32",
    "bool": "int32",
}


class _Program:
    """The lines of a kernel, drawn at random."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.dtype = self.choose.choice(list(_DTYPES))
        computed = _DTYPES[self.dtype]
        self.type, self.is_float = f"tl.{computed}", computed.startswith("float")
        self.binary = _BINARY if self.is_float else _BINARY + _INTEGERS
        self.one = "1.0" if self.is_float else "1"
        self.first = int(self.is_float)  # sums of floats depend on their order
        self.names, self.lines = ["v0", "v1"], list[str]()

    def add(self, text: str) -> str:
        """Define the next tensor."""
        self.names.append(f"v{len(self.names)}")
        self.lines.append(f"{self.names[-1]} = ({text}).to({self.type})")
        return self.names[-1]

    def draw(self, forms: tuple[str, ...], **names: str) -> str:
        """One of some forms of two tensors."""
        operands = {"a": self.choose.choice(self.names), "b": self.choose.choice(self.names), "one": self.one}
        operands |= names
        return self.choose.choice(forms).format(**operands)

    def add_statement(self) -> None:
        """Define a tensor by an operation, a reduction, a loop or a branch; or update memory."""
        kind = self.choose.randrange(12)
        if kind < 3:
            self.add(self.draw(self.binary))
        elif kind == 3:
            self.add(self.draw(_UNARY))
        elif kind == 4:
            self.add(
                f"{self.draw(('{a}',))} + ({self.draw((_ROWS + _PLACES)[self.first :])}).to({self.type})"
            )
        elif kind == 5:
            self.add(self.draw(_MOVED))
        elif kind == 6:
            self._add_block_reduction()
        elif kind == 7 and not self.is_float:
            self.add(self.draw(("tl.cumsum({a}, 0)", "tl.sort({a})", "tl.cumsum({a}, 0, reverse=True)")))
        elif kind in (7, 8):
            carried = self.add(self.draw(("{a} * 1",)))
            self.lines.append(f"for i in range({self.choose.choice(('1', '3', 'n', 'n - 1'))}):")
            self.lines.append(f"    {carried} = ({self.draw(self.binary, a=carried)} + i).to({self.type})")
        elif kind == 9:
            carried, i = self.add(self.draw(("{a} + 1",))), f"i{len(self.names)}"
            self.lines += [f"{i} = n", f"while {i} < {self.choose.randrange(3, 8)}:"]
            self.lines += [
                f"    {carried} = ({self.draw(self.binary, a=carried)}).to({self.type})",
                f"    {i} += 2",
            ]
        elif kind == 10:
            carried = self.add(self.draw(("{a} * 1",)))
            self.lines.append(
                f"if {self.draw(_ROWS[1:])} {self.choose.choice('<>')} {self.choose.randrange(-9, 99)}:"
            )
            self.lines.append(f"    {carried} = ({self.draw(self.binary)}).to({self.type})")
            if self.choose.random() < 0.5:
                self.lines.append(f"else:\n        {carried} = ({self.draw(_UNARY)}).to({self.type})")
        else:
            update, to = self.choose.choice(_UPDATES), self.choose.choice(("at % 5", "at", "at * 0"))
            value = self.draw(("{a} > {b}" if self.is_float else "{a} - {b}",))
            self.lines.append(
                f"tl.atomic_{update}(counts + tl.program_id(0) * BLOCK + {to}, ({value}).to(tl.int32), "
                f"mask=at < {self.choose.randrange(65)})"
            )

    def _add_block_reduction(self) -> None:
        rows, d = self.choose.choice((2, 8, 32)), self.choose.randrange(2)
        block = f"tl.reshape({self.draw(('{a}',))}, ({rows}, BLOCK // {rows}))"
        found = self.draw(_BLOCKS[self.first :], a=block, d=str(d))
        spread = f"tl.expand_dims({found}, {d})"
        self.add(f"tl.reshape({block} + tl.broadcast_to({spread}, ({rows}, BLOCK // {rows})), (BLOCK,))")


def source(seed: int) -> tuple[str, str]:
    """A kernel's text and the dtype of its tensors."""
    program = _Program(seed)
    choose = program.choose
    mask = f", mask=at < {choose.randrange(1, BLOCK + 1)}"
    for _ in range(choose.randrange(2, 10)):
        program.add_statement()
    text = "\n    ".join([
        "def kernel(x, y, out, counts, n, BLOCK: tl.constexpr):",
        "at = tl.arange(0, BLOCK)",
        f"v0 = tl.load(x + at{mask}, other={program.one}).to({program.type})",
        f"v1 = tl.load(y + at).to({program.type})",
        *program.lines,
        f"tl.store(out + tl.program_id(0) * BLOCK + at, {program.names[-1]}{choose.choice(('', mask))})",
        f"tl.store(out + (3 + tl.program_id(0)) * BLOCK - 1 - at, {choose.choice(program.names)})",
    ])  # fmt: skip
    return text + "\n", program.dtype


def results(seed: int) -> torch.Tensor:
    """What the kernel writes, in the compiler or the interpreter of this process."""
    text, name = source(seed)
    file = f"<program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"__name__": f"program_{seed}", "tl": tl}
    exec(compile(text, file, "exec"), namespace)
    torch.manual_seed(seed)
    wide = torch.randn(2, BLOCK).mul(4 if name.startswith("float8") else 40)
    x, y = wide.to(getattr(torch, name))
    if seed % 2:
        y = y.clone()  # tensors that share a storage take a library without fused loops
    out = torch.zeros(4 * BLOCK, dtype=getattr(torch, _DTYPES[name]))
    counts = torch.zeros(2 * BLOCK, dtype=torch.int32)
    triton.jit(namespace["kernel"])[(2,)](x, y, out, counts, seed % 4, BLOCK=BLOCK, enable_fp_fusion=False)
    out[out != out] = torch.nan if out.is_floating_point() else 0  # of which there are many
    return torch.cat([out.view(torch.uint8), counts.view(torch.uint8)])
