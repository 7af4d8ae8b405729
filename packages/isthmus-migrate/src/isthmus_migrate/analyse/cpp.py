"""Functions, kernels and registered operators of a C++ or CUDA source."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.analyse.cpp_tokens import Stream, Token, TokenKind


class Arity(NamedTuple):
    """Number of arguments of a call; ``most`` is None if unlimited or unknown."""

    least: int = 0
    most: int | None = None

    def accepts_count(self, count: int) -> bool:
        """Whether a call may have this number of arguments."""
        return self.least <= count and (self.most is None or count <= self.most)


class Function(NamedTuple):
    """A function defined in a source.

    Attributes:
        name: without namespaces.
        line: of its name.
        end_line: of the end of its body.
        kernel: whether it is ``__global__``.
        arity: from its parameters.
        words: the names in its body.
        cuda: whether the body launches a kernel or uses CUDA's libraries.
    """

    name: str
    line: int
    end_line: int
    kernel: bool
    arity: Arity
    words: frozenset[str]
    cuda: bool


class Launch(NamedTuple):
    """``kernel<<<grid, block>>>(...)``."""

    kernel: str
    line: int


class Binding(NamedTuple):
    """An operator that a source binds to Python.

    Attributes:
        module: pybind11 module (``TORCH_EXTENSION_NAME`` if the build sets it), or the library's namespace.
        name: its name in Python.
        library: whether it is an operator of ``torch.ops``.
        function: the function that implements it; "" if it is only declared.
        keys: dispatch keys of the implementation; empty for pybind11.
        arity: number of arguments, if the binding gives it.
        line: of the binding.
    """

    module: str
    name: str
    library: bool
    function: str
    keys: frozenset[str]
    arity: Arity
    line: int


class Unit(NamedTuple):
    """A C++ or CUDA source; ``tensors`` is whether it uses PyTorch."""

    functions: list[Function]
    bindings: list[Binding]
    launches: list[Launch]
    headers: list[Token]  # headers of CUDA
    ptx: list[Token]
    tensors: bool


_CUDA_HEADER = re.compile(
    r"(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|nvToolsExt|nvrtc|nccl|cub/|thrust/|cutlass/|cute/|nvtx|mma\.h|"
    r"cooperative_groups|cooperative_groups/|device_launch_parameters|nvml|(ATen|c10|torch)/(.*/)?(cuda|cudnn)/)"
)
_CUDA_WORD = re.compile(
    r"(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|nccl)([A-Z_]\w*)?$|(thrust|cub|cutlass|cute)$|\w*CUDAStream$|"
    r"(C10|AT)_CUDA_\w+$|C10_CUDA_KERNEL_LAUNCH_CHECK$"
)
_NOT_FUNCTIONS = frozenset(
    "if for while switch catch return sizeof alignof decltype defined static_assert".split()
)
_BETWEEN = frozenset(("const", "noexcept", "override", "final", "&"))  # a parameter list and its body
_PYTORCH = re.compile(r"(torch|at|c10|ATen)(/|$)")
_NAMING = frozenset((TokenKind.NAME, TokenKind.INCLUDE))
_PYBIND = frozenset(("PYBIND11_MODULE",))
_LIBRARY = re.compile(r"TORCH_LIBRARY(_FRAGMENT|_EXPAND)?$")
_IMPL = re.compile(r"TORCH_LIBRARY_IMPL(_EXPAND)?$")


def read(text: str) -> Unit:
    """Parse a source."""
    stream = Stream(text)
    functions: list[Function] = []
    bindings: list[Binding] = []
    for name, at, start, end, kernel in _definitions(stream):
        block = _block(stream, name, at, start, end)
        if block is None:
            functions.append(_function(stream, name, at, start, end, kernel))
        else:
            bindings += block
    headers = [each for each in stream if each.of is TokenKind.INCLUDE and _CUDA_HEADER.match(each.text)]
    tensors = any(each.of in _NAMING and _PYTORCH.match(each.text) for each in stream)
    unit = Unit(functions, bindings, list(_launches(stream)), headers, list(_ptx(stream)), tensors)
    for each in stream:
        if each.of is TokenKind.DEFINE:
            _add_macro(unit, each)
    return unit


def _add_macro(unit: Unit, define: Token) -> None:
    """Record a macro as a function, so that its launches count where it is used."""
    stream = Stream(define.text, define.line)
    if not stream or stream[0].of is not TokenKind.NAME:
        return
    macro = _function(stream, stream[0].text, 0, 1, len(stream), kernel=False)
    if macro.words:
        unit.functions.append(macro._replace(arity=Arity()))
        unit.launches.extend(_launches(stream))
        unit.ptx.extend(_ptx(stream))


def _definitions(stream: Stream) -> Iterator[tuple[str, int, int, int, bool]]:
    """Yield name, index of the parameter list, first and last index of the body, and whether it is a kernel."""
    index, kernel = 0, False
    while index < len(stream) - 1:
        of, text, _ = stream[index]
        if of is TokenKind.SIGN and text in ";{}":
            kernel = False
        elif text == "__global__":
            kernel = True
        elif of is TokenKind.NAME and text not in _NOT_FUNCTIONS and stream[index + 1].text == "(":
            at = index + 1
            body = _body(stream, stream.find_closing(at) + 1)
            if body is not None:
                end = stream.find_closing(body)
                yield text, at, body, end, kernel
                index, kernel = end, False
        index += 1


def _body(stream: Stream, index: int) -> int | None:
    """Return the index of a body's opening brace, searching from the end of the parameter list."""
    while index < len(stream) and stream[index].text in _BETWEEN:
        index += 1
    return index if index < len(stream) and stream[index].text == "{" else None


def _function(stream: Stream, name: str, at: int, start: int, end: int, kernel: bool) -> Function:
    body = stream[start:end]
    words = frozenset(each.text for each in body if each.of is TokenKind.NAME)
    cuda = kernel or any(each.text == "<<<" for each in body) or any(map(_CUDA_WORD.match, words))
    last = stream[min(end, len(stream) - 1)].line
    return Function(name, stream[at].line, last, kernel, _parameters(stream, at), words, cuda)


def _parameters(stream: Stream, at: int) -> Arity:
    parts = [part for part in stream.arguments(at) if [each.text for each in part] != ["void"]]
    optional = sum(any(each.text == "=" for each in part) for part in parts)
    return Arity(len(parts) - optional, len(parts))


def _launches(stream: Stream) -> Iterator[Launch]:
    for index, each in enumerate(stream):
        if each.text == "<<<" and each.of is TokenKind.SIGN:
            yield Launch(_name_before(stream, index), each.line)


def _name_before(stream: Stream, index: int) -> str:
    """Return the name before ``<<<``, skipping template arguments."""
    depth = 0
    for each in reversed(stream[max(0, index - 60) : index]):
        if each.of is TokenKind.SIGN and each.text in "<>":
            depth += (each.text == ">") - (each.text == "<")
        elif each.of is TokenKind.NAME and not depth:
            return each.text
    return "?"


def _ptx(stream: Stream) -> Iterator[Token]:
    for index, each in enumerate(stream):
        if each.text in ("asm", "__asm__") and each.of is TokenKind.NAME:
            following = stream[index + 1 : index + 3]
            if any(token.text == "(" for token in following):
                yield each


# ---- bindings to Python ----- ---------------------------------------------------------------------------------
def _block(stream: Stream, name: str, at: int, start: int, end: int) -> list[Binding] | None:
    """Return the bindings of ``PYBIND11_MODULE(...) {...}`` and similar macros; None for other functions."""
    pybind, impl = name in _PYBIND, _IMPL.match(name)
    if not (pybind or impl or _LIBRARY.match(name)):
        return None
    heads = [part[-1].text for part in stream.arguments(at) if part]
    if len(heads) < 2:
        return []
    keys = frozenset([heads[1]]) if impl else frozenset[str]()
    module, variable = heads[0], heads[-1]
    return list(_bindings(stream, start, end, module, variable, not pybind, keys))


def _bindings(
    stream: Stream, start: int, end: int, module: str, variable: str, library: bool, keys: frozenset[str]
) -> Iterator[Binding]:
    for index in range(start, end - 2):
        first, dot, method = stream[index : index + 3]
        line = first.line
        if first.text in ("class_", "enum_"):  # pybind11::class_<T>(m, "Name")
            opening = next((i for i in range(index, end) if stream[i].text == "("), end)
            found = _text(stream.arguments(opening)[1:])
            if found:
                yield Binding(module, found, library, "", keys, Arity(), line)
        elif dot.text == "." and method.text in ("def", "impl"):
            parts = stream.arguments(index + 3)
            if first.text == variable or _chained(stream, start, index, variable):
                found = _text(parts[:1])
                if found:
                    yield _binding(module, found, library, parts, keys, line)


def _chained(stream: Stream, start: int, index: int, variable: str) -> bool:
    """Whether ``).def(...)`` continues a statement that starts with the variable: ``m.def(...).def(...)``."""
    if stream[index].text != ")":
        return False
    while index > start and stream[index].text not in ";{}":
        index -= 1
    return stream[index + 1].text == variable


def _text(parts: list[list[Token]]) -> str:
    """Return the first string of the first argument, also inside a macro."""
    return next((each.text for part in parts[:1] for each in part if each.of is TokenKind.STRING), "")


def _binding(
    module: str, found: str, library: bool, parts: list[list[Token]], keys: frozenset[str], line: int
) -> Binding:
    names = [each.text for part in parts[1:] for each in part if each.of is TokenKind.NAME]
    own = frozenset(each.lstrip("k") for each in names if each.lstrip("k") in ("CUDA", "CPU", "Meta"))
    function = _implementation(parts[-1]) if len(parts) > 1 else ""
    if not library:
        return Binding(
            module,
            found,
            False,
            _implementation(parts[1]) if parts[1:] else "",
            keys,
            _count_named_arguments(parts),
            line,
        )
    name = found.partition("(")[0].rpartition("::")[2].strip()
    if function and not keys and not own:
        own = frozenset(["CompositeImplicitAutograd"])  # m.def(schema, function)
    return Binding(module, name, True, function, keys | own, schema_arity(found), line)


def _implementation(part: list[Token]) -> str:
    """Return f for ``&ns::f``, ``TORCH_FN(f)``, ``wrap<f>`` or ``f``; "" for a lambda."""
    if any(each.text == "[" for each in part):
        return ""
    names = [each.text for each in part if each.of is TokenKind.NAME]
    return names[-1] if names else ""


def _count_named_arguments(parts: list[list[Token]]) -> Arity:
    """Count ``py::arg("x")`` and ``py::arg("x") = 1``."""
    named = [part for part in parts[2:] if any(each.text == "arg" for each in part)]
    if not named:
        return Arity()
    optional = sum(any(each.text == "=" for each in part) for part in named)
    return Arity(len(named) - optional, len(named))


def schema_arity(schema: str) -> Arity:
    """Return the arity of a schema: ``"f(Tensor x, int n=1, *, float eps) -> Tensor"`` takes 2 or 3 arguments."""
    if "(" not in schema:
        return Arity()
    rest = schema.partition("(")[2]
    inside = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", rest.rpartition("->")[0] or rest)
    parts = [each.strip(" )*") for each in inside.rpartition(")")[0].split(",")]
    parts = [each for each in parts if each]
    optional = sum("=" in each for each in parts)
    return Arity(len(parts) - optional, len(parts))
