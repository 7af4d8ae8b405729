"""Functions of CUDA's libdevice in C: ``__nv_expf``, ``__nv_float2int_rn`` ..."""

from __future__ import annotations

import re

from isthmus_triton.refusals import refuse

# Functions by the names of the C library that are not the C library's here.
_OWN = {
    **{each: f"fast_{each}f" for each in "exp exp2 log log2 tanh erf pow sin cos".split()},
    "powf": "fast_powf",
}
_OWN_OF_DOUBLE = {
    **{each: f"fast_{each}" for each in "exp exp2 log log2 tanh erf pow".split()},
    "powf": "fast_pow",
}
_CALLED = {"absf": "fabs", "fma": "__builtin_fma", "powf": "pow", "rsqrt": "inverse_sqrt"}
KNOWN = frozenset(
    "absf acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim "
    "floor fma fmax fmin fmod hypot j0 j1 ldexp lgamma log log10 log1p log2 nearbyint nextafter pow powf remainder "
    "rint round roundeven rsqrt sin sinh sqrt tan tanh tgamma trunc y0 y1".split()
)
# Others, with their operands; {f} is the suffix of functions of float.
_FORMS = {
    **dict.fromkeys(("isnan", "isnand"), "({0} != {0})"),
    **dict.fromkeys(("isinf", "isinfd"), "(fabs{f}({0}) == INFINITY)"),
    **dict.fromkeys(("finite", "isfinited"), "(fabs{f}({0}) < INFINITY)"),
    **dict.fromkeys(("fdivide", "fdividef", "div_rn", "fdiv_rn", "ddiv_rn"), "({0} / {1})"),
    **dict.fromkeys(("sqrt_rn", "fsqrt_rn", "dsqrt_rn"), "sqrt{f}({0})"),
    **dict.fromkeys(("float2int_rn", "double2int_rn"), "to_int32(rint({0}))"),
    **dict.fromkeys(("float2int_rz", "double2int_rz"), "to_int32({0})"),
    **dict.fromkeys(("float2int_rd", "double2int_rd"), "to_int32(floor({0}))"),
    **dict.fromkeys(("float2int_ru", "double2int_ru"), "to_int32(ceil({0}))"),
    "from_e4m3_b15": "e4m3_b15_to_float((uint8_t){0})",
    "to_e4m3_b15": "(int8_t)float_to_e4m3_b15({0})",
    "float_as_int": "(int32_t)float_bits({0})",
    "int_as_float": "as_float((uint32_t){0})",
    "double_as_longlong": "(int64_t)double_bits({0})",
    "longlong_as_double": "as_double((uint64_t){0})",
    **dict.fromkeys(("abs", "llabs"), "({0} < 0 ? -{0} : {0})"),
    "signbit": "(__builtin_signbit({0}) != 0)",
    "signbitd": "(__builtin_signbit({0}) != 0)",
    "powi": "pow{f}({0}, {1})",
    "mul_rn": "({0} * {1})",
    "ilogb": "ilogb{f}({0})",
    "erfinv": "erf_inverse({0})",
    "erfcx": "scaled_erfc({0})",
    "cyl_bessel_i0": "bessel_i(0, {0})",
    "cyl_bessel_i1": "bessel_i(1, {0})",
    "rcbrt": "(1 / cbrt{f}({0}))",
    "llrint": "(int64_t)rint({0})",
    "cospi": "cos{f}({0} * (float)M_PI)",
    "sinpi": "sin{f}({0} * (float)M_PI)",
    "popc": "__builtin_popcount((uint32_t){0})",
    "popcll": "__builtin_popcountll((uint64_t){0})",
    "clz": "({0} ? __builtin_clz((uint32_t){0}) : 32)",
    "clzll": "({0} ? __builtin_clzll((uint64_t){0}) : 64)",
    "ffs": "__builtin_ffs({0})",
    "ffsll": "__builtin_ffsll({0})",
}


# Single instructions of PTX, without operands and the suffixes that only cost accuracy.
_INSTRUCTIONS = {
    **dict.fromkeys(("mov.f32", "mov.b32", "mov.u32", "cvt.rna.tf32.f32"), "{0}"),
    **dict.fromkeys(("mul.f32", "mul.rn.f32", "mul.rn.bf16x2"), "({0} * {1})"),
    **dict.fromkeys(("add.f32", "add.rn.f32", "add.rn.bf16x2"), "({0} + {1})"),
    "fma.rn.f32": "__builtin_fmaf({0}, {1}, {2})",
    "rcp.f32": "(1.0f / {0})",
    "rsqrt.f32": "inverse_sqrtf({0})",
    "sqrt.f32": "sqrtf({0})",
    "ex2.f32": "fast_exp2f({0})",
    "lg2.f32": "fast_log2f({0})",
    "tanh.f32": "fast_tanhf({0})",
    "sin.f32": "fast_sinf({0})",
    "cos.f32": "fast_cosf({0})",
}


def instruction(text: str, operands: list[str]) -> str:
    """The text of an inline assembly that is a single usual instruction: ``tanh.approx.f32 $0, $1;``.

    Raises:
        Unsupported: it is another.
    """
    name, _, rest = text.strip().rstrip(";").strip().partition(" ")
    name = re.sub(r"\.(approx|ftz)\b", "", name)
    places = [f"${at}" for at in range(len(operands) + 1)]
    if name not in _INSTRUCTIONS or re.split(r",\s*", rest.strip()) != places:
        refuse("inline assembly")
    return _INSTRUCTIONS[name].format(*operands)


def call(name: str, operands: list[str], is_double: bool) -> str:
    """A function of floating-point numbers by the C library's name, or the dialect ``math``'s.

    Raises:
        Unsupported: the name is unknown.
    """
    if name not in KNOWN:
        refuse(f"the function {name}")
    joined = ", ".join(operands)
    if is_double:
        return f"{_OWN_OF_DOUBLE.get(name) or _CALLED.get(name, name)}({joined})"
    return f"{_OWN.get(name) or _CALLED.get(name, name) + 'f'}({joined})"


def call_external(symbol: str, operands: list[str], is_double: bool) -> str:
    """A function by libdevice's name.

    Raises:
        Unsupported: the name is unknown.
    """
    name = re.sub(r"^(__nv_)?(fast_)?", "", symbol)
    for each in (name, name.removesuffix("f")):
        if each in _FORMS:
            return _FORMS[each].format(*operands, f="" if is_double else "f")
        if each in KNOWN:
            return call(each, operands, is_double)
    return refuse(f"the function {symbol} of libdevice")
