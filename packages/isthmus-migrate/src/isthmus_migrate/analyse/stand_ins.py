"""Suggested replacements of the project's kernels, by name."""

import re

# Pattern of a lower-case name without underscores -> public function; the first match counts.
STAND_INS = (
    (r"linearcrossentropy", "isthmus.ops.linear_cross_entropy"),
    (r"crossentropy|xentropy", "isthmus.ops.cross_entropy"),
    (r"dropoutadd(layer)?(ln|norm)", "isthmus.ops.dropout_add_layer_norm"),
    (r"add(residual)?rms", "isthmus.ops.add_rms_norm"),
    (r"rmsnorm|fusedrms", "isthmus.ops.rms_norm"),
    (r"layernorm|fastln", "torch.nn.functional.layer_norm"),
    (r"groupnorm", "torch.nn.functional.group_norm"),
    (r"flashattn|flashattention|fmha|fusedattention|memoryefficientattention", "isthmus.ops.flash_attn_func"),
    (r"swiglu|siluandmul|silumul", "isthmus.ops.swiglu"),
    (r"rotary|rope(?!n)", "isthmus.ops.apply_rotary_emb"),
    (r"scaled(upper|lower)?\w*softmax|maskedsoftmax", "isthmus.ops.scaled_masked_softmax"),
    (r"groupedgemm|groupedmatmul|groupgemm|\bgmm", "isthmus.ops.grouped_matmul"),
    (r"moe(un)?permute|permutetokens|tokenpermute", "isthmus.ops.permute"),
    (r"unpadinput", "isthmus.ops.unpad_input"),
    (r"fusedadam|multitensoradam|cpuadam", "isthmus.ops.adamw_"),
    (r"multitensorl2norm|clipgradnorm", "isthmus.ops.grad_norm"),
    (r"multitensorscale", "torch._foreach_mul_"),
    (r"gelu", "torch.nn.functional.gelu"),
    (r"silu|swish", "torch.nn.functional.silu"),
    (r"softmax", "torch.softmax"),
)
_FOUND = tuple((re.compile(pattern), function) for pattern, function in STAND_INS)


def stand_in(name: str) -> str:
    """Return the public function suggested by a kernel's name, or ""."""
    plain = name.lower().replace("_", "")
    return next((function for pattern, function in _FOUND if pattern.search(plain)), "")


def advise_port(name: str, languages: str = "with PyTorch's operators, in Triton") -> str:
    """Return advice on porting a kernel of this name."""
    function = stand_in(name)
    first = f"{function} may replace it; else write" if function else "write"
    return f"{first} it {languages}, or for the target's driver (see examples/sample_chip)"
