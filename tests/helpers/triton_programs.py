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
_ROWS = ("tl.sum({a}, 0)", "tl.max({a}, 0)", "tl.min({a}, 0)")


def source(seed: int) -> tuple[str, str]:
    """A kernel's text and the dtype of its tensors."""
    choose = random.Random(seed)
    dtype = choose.choice(("float32", "float64", "int32", "int64", "int16", "int8"))
    is_float = dtype.startswith("float")
    binary = _BINARY if is_float else _BINARY + _INTEGERS
    rows = _ROWS if not is_float else _ROWS[1:]  # sums of floats depend on their order
    names, lines = ["v0", "v1"], []

    def add(indent: str, text: str) -> None:
        names.append(f"v{len(names)}")
        lines.append(f"{indent}{names[-1]} = ({text}).to(v0.dtype)")

    for _ in range(choose.randrange(2, 9)):
        a, b = choose.choice(names), choose.choice(names)
        kind = choose.random()
        if kind < 0.5:
            add("", choose.choice(binary).format(a=a, b=b))
        elif kind < 0.7:
            add("", choose.choice(_UNARY).format(a=a))
        elif kind < 0.85:
            add("", f"{a} + ({choose.choice(rows).format(a=b)}).to(v0.dtype)")
        else:
            add("", f"{a} * 1")
            carried = names[-1]
            lines.append(f"for i in range({choose.randrange(1, 4)}):")
            lines.append(f"    {carried} = ({choose.choice(binary).format(a=carried, b=b)} + i).to(v0.dtype)")
    mask = f", mask=at < {choose.randrange(1, BLOCK + 1)}"
    text = "\n    ".join([
        "def kernel(x, y, out, BLOCK: tl.constexpr):",
        "at = tl.arange(0, BLOCK)",
        f"v0 = tl.load(x + at{mask}, other=1)",
        "v1 = tl.load(y + at)",
        *lines,
        f"tl.store(out + tl.program_id(0) * BLOCK + at, {names[-1]}{choose.choice(('', mask))})",
        f"tl.store(out + (1 + tl.program_id(0)) * BLOCK + at, {choose.choice(names)})",
    ])  # fmt: skip
    return text + "\n", dtype


def results(seed: int) -> torch.Tensor:
    """What the kernel writes, in the compiler or the interpreter of this process."""
    text, name = source(seed)
    file = f"<program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"__name__": f"program_{seed}", "tl": tl}
    exec(compile(text, file, "exec"), namespace)
    torch.manual_seed(seed)
    x, y = torch.randn(2, BLOCK).mul(40).to(getattr(torch, name))
    out = torch.zeros(4 * BLOCK, dtype=x.dtype)
    triton.jit(namespace["kernel"])[(2,)](x, y, out, BLOCK=BLOCK, enable_fp_fusion=False)
    return out
