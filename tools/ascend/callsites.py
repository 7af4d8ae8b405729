"""Call sites of aclnn functions in op-plugin (BSD-3): which function of which operator calls what with what.

Only facts leave this file: names, C types and the order of parameters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALL = re.compile(r"\bEXEC_(?:UPDATE_)?NPU_[A-Z_0-9]*CMD[A-Z_0-9]*\(\s*(aclnn\w+)\s*,")
FUNCTION = re.compile(r"^(?=[A-Za-z])[\w:<>,&* \n]+?[\s&*](\w+)\(", re.M)
# The C++ types of op-plugin's arguments, by the kind of the C parameter that each becomes.
KINDS = {
    "tensors": r"(at::)?TensorList|(std::)?vector<at::Tensor>|(c10::|at::)?ArrayRef<(at::)?Tensor>"
    r"|(at::)?ITensorListRef|TensorListWrapper|(c10::|std::)optional<at::TensorList>|c10::List<.*Tensor>+",
    "scalars": r"(at::|c10::)?ArrayRef<(at::|c10::)?Scalar>|std::vector<(at|c10)::Scalar>",
    "tensor": r"(at::)?Tensor|(c10::|std::|at::)optional<(at::)?Tensor>|TensorWrapper|c10::MaybeOwned<.*Tensor>",
    "scalar": r"(at::|c10::)?Scalar|(c10::|std::)optional<(at::|c10::)?Scalar>",
    "ints": r"(at::|c10::)?(Optional)?(Sym)?IntArrayRef|(c10::|at::)?OptionalIntArrayRef"
    r"|(c10::|at::)?SmallVector<int64_t,.*>"
    r"|std::vector<int64_t>|(c10::|std::)optional<(at::|c10::)?(Sym)?IntArrayRef>|(c10::|at::)(Optional)?ArrayRef<(c10::)?(SymInt|int64_t)>"
    r"|c10::OptionalArrayRef<.*>|c10::SymIntArrayRef|std::array<int64_t, ?\w+>",
    "bools": r"(::)?std::array<bool, ?\w+>|at::ArrayRef<bool>",
    "dtype": r"(at::|c10::)?ScalarType|aclDataType",
    "int8": r"int8_t",
    "int32": r"int|int32_t|uint32_t",
    "int": r"(const )?int64_t|uint64_t|size_t|c10::SymInt|unsigned long",
    "bool": r"bool",
    "double": r"double",
    "float": r"float",
    "string": r"(const )?char ?\*|char\[\]|char ?\*const|std::string|c10::string_view|std::string_view",
}
# Names and calls that occur as `auto x = ...`.
AUTO = (
    (r"_char$|^\"", "string"),
    (r"^\*(seed|offset)_ptr$|^(?!static_cast).*\[i\]$", "tensor"),
    (
        r"\.(contiguous|clone|to|view|reshape|squeeze|unsqueeze|transpose|t|permute|index_select|select)\([^;]*\)$",
        "tensor",
    ),
    (
        r"(apply_tensor\w*|empty\w*|copy_scalar_to_device|zeros\w*|ones\w*|copy_tensor_host_to_device|expand_tensor)\(",
        "tensor",
    ),
    (r"value_or\(at::Tensor\(\)\)|get_tensor|format_trans|copy_tensor|promote|to_type", "tensor"),
    (r"\.item\(\)$|Scalar\(", "scalar"),
    (r"array_to_small_vector|output_size|\.sizes\(\)|IntArrayRef", "ints"),
    (r"\.scalar_type\(\)|result_type|kFloat|ScalarType::", "dtype"),
    (r"get_cube_math_type|npu_cube_math|int8_t", "int8"),
    (r"static_cast<(\w+)>|get_rng|philox|\.size\(|\.dim\(\)|std::get<", "int"),
    (r"TensorList|tensorlist", "tensors"),
    (r"char|\.data\(\)|c_str", "string"),
    (r"^(true|false)$|[!=]=|&&|\|\|", "bool"),
)


@dataclass(frozen=True)
class Site:
    """One call: the aclnn name, the function around it, that function's parameters, and (expression, kind) pairs.

    A kind is one of KINDS, or "?" where the text does not tell.
    """

    name: str
    function: str
    parameters: tuple[tuple[str, str], ...]
    arguments: tuple[tuple[str, str], ...]


def split(text: str, start: int = 0) -> tuple[list[str], int]:
    """Split at the commas of the level that starts at `start`; return the parts and the end of the level."""
    depth, parts, begin, i = 1, [], start, start
    while True:
        char = text[i]
        if char in "([{" or (char == "<" and re.match(r"<[\w:, <>]*>", text[i:]) and text[i - 1] != " "):
            depth += 1
        elif char in ")]}" or (char == ">" and text[i - 1] not in "- =" and depth > 1):
            depth -= 1
        if depth == 0:
            parts.append(text[begin:i])
            return [re.sub(r"\s+", " ", part).strip() for part in parts if part.strip()], i
        if char == "," and depth == 1:
            parts.append(text[begin:i])
            begin = i + 1
        i += 1


def kind_of(declared: str) -> str:
    """Return the kind of a C++ type, "?" for an unknown one."""
    plain = re.sub(r"\b(const|static|constexpr)\b|[&]", "", declared).strip()
    return next((kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, plain)), "?")


def kind_of_expression(text: str, body: str) -> str:
    """Return the kind of an argument from the last declaration of its name before the call, or from its text."""
    if re.fullmatch(r"\w+", text):
        typed = re.findall(rf"([\w:<>, ]+?(?:\[\])?)[&*\s]+{text}(?:\[\])?\s*[=;({{,)]", body)
        pointer = re.search(rf"char ?\*\s*(?:const )?{text}\b", body)
        if pointer:
            return "string"
        for declared in reversed(typed):
            plain = re.sub(r"^.*[(,]\s*(?=const|at::|c10::|[a-z]+64)", "", declared.strip())
            for candidate in (declared.strip(), plain, declared.split(",")[-1].strip()):
                if (kind := kind_of(candidate)) != "?":
                    return kind
        values = re.findall(rf"auto\s*&?\s*{text}\s*=\s*([^;]+);", body)
        if values:
            value = re.sub(r"\s+", " ", values[-1]).strip()
            if inner := re.match(r"static_cast<([\w: ]+)>", value):
                return kind_of(inner[1])
            return next((kind for pattern, kind in AUTO if re.search(pattern, value)), "?")
        return "?"
    if inner := re.match(r"static_cast<([\w: ]+)>", text):
        return kind_of(inner[1])
    if re.fullmatch(r"-?\d+", text):
        return "int32"
    return next((kind for pattern, kind in AUTO if re.search(pattern, text)), "?")


def sites_in(text: str) -> Iterator[Site]:
    """Yield the call sites of one source text."""
    text = re.sub(r"//[^\n]*", "", text)
    functions = [(match.start(), match.end(), match[1]) for match in FUNCTION.finditer(text)]
    for call in CALL.finditer(text):
        around = [f for f in functions if f[0] < call.start()]
        if not around:
            continue
        begin, inside, function = around[-1]
        parameters = []
        for part in split(text, inside)[0]:
            match = re.fullmatch(r"(.*[\s&*>])(\w+)(?:\s*=.*)?", part)
            if match:
                parameters.append((kind_of(match[1]), match[2]))
        body = text[begin : call.start()]
        arguments = tuple((arg, kind_of_expression(arg, body)) for arg in split(text, call.end())[0])
        yield Site(call[1], function, tuple(parameters), arguments)


def call_sites(op_plugin: Path) -> list[Site]:
    """Return the call sites of a checkout of op-plugin, in the order of its files."""
    folders = ("op_plugin/ops", "op_plugin/utils/custom_functions/opapi")
    files = [path for folder in folders for path in sorted((op_plugin / folder).rglob("*.cpp"))]
    return [site for path in files for site in sites_in(path.read_text())]
