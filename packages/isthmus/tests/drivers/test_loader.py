"""Opening operator libraries and drivers without PyTorch; invalid ones raise one clear line."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import isthmus
from isthmus.drivers import interface, libraries, loader
from isthmus.drivers.driver import Driver
from isthmus.opset import dtypes as dt
from isthmus.opset import schema_of
from isthmus.opset.library import Library
from tools.repository import CORE

HOST = CORE / "src/isthmus/drivers/host/libisthmus_host.so"
INCLUDES = (f"-I{isthmus.include_path()}", f"-isystem{libraries._runtime_folder() / 'include'}")

SOURCE = r"""
#define ISTHMUS_OPERATORS_IMPLEMENTATION
#include "operators.h"

static int relu(void* handle, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)handle; (void)args; (void)count;
  result->type_index = kTVMFFINone;
  return 0;
}
static isthmus_operator operators[] = {
    {"aten::relu", ISTHMUS_DTYPE(FLOAT32) | ISTHMUS_DTYPE(BFLOAT16), ISTHMUS_OPERATOR_STRIDED, relu, operators},
    {"aten::tanh", ISTHMUS_DTYPE(FLOAT32), 0, relu, 0},
};
static isthmus_operator_library library = {
    sizeof(isthmus_operator_library), ISTHMUS_OPERATORS_VERSION, "mine", "two operators",
    sizeof(isthmus_operator), 2, operators};

__attribute__((visibility("default"))) const isthmus_operator_library* isthmus_operators_get(uint32_t version) {
  (void)version;
  EDIT
  return &library;
}
"""


def build(folder: Path, edit: str = "") -> str:
    """Compile a library of operators against the headers that the package installs."""
    source, library = folder / "operators.c", folder / "liboperators.so"
    source.write_text(SOURCE.replace("EDIT", edit))
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *INCLUDES]
    subprocess.run(["cc", str(source), "-o", str(library), *flags], check=True)
    return str(library)


def python(folder: Path, text: str) -> str:
    path = folder / "operators.py"
    path.write_text("from isthmus.opset.library import Library\n" + text)
    return str(path)


def test_a_shared_library(tmp_path: Path) -> None:
    path = build(tmp_path)
    library = libraries.load(path)
    assert (library.name, library.description, library.path) == ("mine", "two operators", path)
    assert list(library.operators) == ["aten::relu", "aten::tanh"]
    relu = library.operators["aten::relu"]
    assert (relu.dtypes, relu.flags) == (dt.mask(("float32", "bfloat16")), 1)
    assert relu.call != 0 and relu.handle != 0 and library.operators["aten::tanh"].handle == 0


def test_the_function_of_a_shared_library_can_be_called(tmp_path: Path) -> None:
    library = libraries.load(build(tmp_path))
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int32, ctypes.c_void_p)
    result = ctypes.create_string_buffer(b"\xff" * 16, 16)
    relu = library.operators["aten::relu"]
    assert function(relu.call)(relu.handle, None, 0, ctypes.addressof(result)) == 0
    assert result.raw[:4] == b"\0\0\0\0"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("return 0;", "does not support operator interface version 1; install a library built for it."),
        (
            "library.version = 2u << 16;",
            "implements operator interface version 2.0; this Isthmus supports version 1",
        ),
        ("library.struct_size = 8;", "has a struct_size of 8, less than the 40 of isthmus_operator_library"),
        ("library.operator_size = 16;", "has an operator_size of 16, less than the 40 of isthmus_operator"),
        ("library.name = 0;", "has no name"),
        ('library.name = "";', "has no name"),
        ("library.description = 0;", "has no description"),
        ("library.operators = 0;", "counts 2 operators but its table is null"),
        ("operators[1].name = 0;", "has no name for operator 1"),
        ("operators[1].call = 0;", "operator aten::tanh: the function (call) is null"),
        ("operators[1].dtypes = 0;", "operator aten::tanh: the set of dtypes is empty"),
        ("operators[1].dtypes = 1ull << 40;", "operator aten::tanh: the set of dtypes has an unknown bit"),
        ("operators[1].flags = 1u << 20;", "operator aten::tanh: unknown flag; use ISTHMUS_OPERATOR_*"),
        ('operators[1].name = "aten::relu";', "has the operator aten::relu twice"),
        ('operators[1].name = "aten::tahn";', "no operator 'aten::tahn' in the opset; similar: aten::tan"),
        (
            'operators[1].name = "aten::relu_";',
            "aten::relu_ is implemented by the kernel of aten::relu; register that",
        ),
    ],
)
def test_a_wrong_shared_library_is_refused(tmp_path: Path, edit: str, message: str) -> None:
    path = build(tmp_path, edit)
    with pytest.raises(libraries.LibraryError) as caught:
        libraries.load(path)
    text = str(caught.value)
    assert text.startswith(f"operator library {path}") and message in text and "\n" not in text


def test_a_larger_operator_of_a_newer_library_is_read(tmp_path: Path) -> None:
    edit = """
  static struct { isthmus_operator first; void* later; } newer[2];
  for (int i = 0; i < 2; ++i) newer[i].first = operators[i];
  newer[1].first.flags = 1u << 20;
  library.operators = &newer[0].first; library.operator_size = sizeof newer[0]; library.version += 1;"""
    library = libraries.load(build(tmp_path, edit))
    assert library.operators["aten::tanh"].flags == 1 << 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: str(folder / "absent.so"), "is not a file; check `operators` in driver.toml"),
        (lambda folder: shutil.copy(HOST, folder / "x.so"), "does not export isthmus_operators_get"),
        (lambda folder: shutil.copy(__file__, folder / "text.so"), "cannot be opened"),
        (lambda folder: python(folder, ""), "has no `library = Library(...)` at module level"),
        (lambda folder: python(folder, "1 / 0"), "fails on import: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    path = make(tmp_path)
    with pytest.raises(libraries.LibraryError) as caught:
        libraries.load(str(path))
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_library_is_refused_before_it_is_opened(tmp_path: Path, part: float) -> None:
    path = Path(build(tmp_path))
    data = path.read_bytes()
    path.unlink()  # the name may be open under its inode
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(libraries.LibraryError, match=r"cut short: it has \d+ of at least \d+ bytes"):
        libraries.load(str(path))
    with pytest.raises(loader.LoaderError, match="cut short"):
        Driver(str(path))


def test_a_relative_path_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert libraries.load(Path(path).name).path == path


@pytest.mark.parametrize(
    ("registration", "message"),
    [
        ('library.operator("aten::nosuch", dtypes="int8")(print)', "no operator 'aten::nosuch' in the opset"),
        (
            'library.operator("aten::add.Tensor", dtypes=("real",))(print)',
            "library mine, aten::add.Tensor: unknown dtype 'real'",
        ),
        ('@library.operator("silu", dtypes="float32")\ndef f(self, out): ...', "did you mean aten::silu?"),
        ('@library.operator("aten::silu", dtypes="flaot32")\ndef f(self, out): ...', "did you mean float32?"),
        (
            '@library.operator("aten::silu", dtypes=("real",))\ndef f(self, out): ...',
            "expected one of int8, uint8",
        ),
        (
            '@library.operator("aten::add.Tensor", dtypes="float32")\ndef f(self, other, out, context): ...',
            "takes 3 parameters (self, other, out), but is called with 4 (self, other, alpha, out)",
        ),
        (
            '@library.operator("aten::silu", dtypes="float32", raw=True)\ndef f(self, out): ...',
            "takes 2 parameters (self, out), but is called with 3 (context, self, out)",
        ),
    ],
)
def test_a_mistake_in_a_python_library_is_reported_in_one_line(
    tmp_path: Path, registration: str, message: str
) -> None:
    path = python(tmp_path, f'library = Library("mine")\n{registration}\n')
    with pytest.raises(libraries.LibraryError) as caught:
        libraries.load(path)
    assert message in str(caught.value) and path in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_is_one_dtype(tmp_path: Path) -> None:
    text = 'library = Library("mine")\n@library.operator("aten::relu", dtypes="int8")\ndef relu(self, out): ...\n'
    assert libraries.load(python(tmp_path, text)).operators["aten::relu"].dtypes == dt.mask(("int8",))


def test_an_error_in_a_kernel_says_where(tmp_path: Path) -> None:
    kernels = Library("mine")
    scope: dict[str, object] = {}
    text = "def helper(x):\n    return 1 / x\n\ndef relu(self, out):\n    helper(0)\n"
    exec(compile(text, str(tmp_path / "mine.py"), "exec"), scope)
    kernels.operator("aten::relu", dtypes="float32")(scope["relu"])  # type: ignore[arg-type]
    call = kernels.function("aten::relu", schema_of("aten::relu"))
    with pytest.raises(ZeroDivisionError, match=r"division by zero \(ZeroDivisionError at mine\.py:2\)"):
        call(0, None, None)


def test_a_python_library(tmp_path: Path) -> None:
    text = """
library = Library("mine", "one operator")

@library.operator("aten::relu", dtypes=("float32",), strided=True)
def relu(self, out):
    out[...] = self
"""
    library = libraries.load(python(tmp_path, text))
    assert (library.name, library.description) == ("mine", "one operator")
    relu = library.operators["aten::relu"]
    assert relu.dtypes == dt.mask(("float32",)) and relu.call != 0 and relu.handle != 0


def test_two_python_libraries_with_the_same_file_name_are_separate(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        found.append(libraries.load(python(tmp_path / name, f'library = Library("{name}")')).name)
    assert found == ["one", "two"]


def test_a_driver_can_be_renamed_and_narrowed() -> None:
    driver = Driver(str(HOST), name="other", delegate="none")
    assert (driver.name, driver.table.delegate) == ("other", 0)
    original = Driver(str(HOST))
    assert (original.name, original.table.delegate) == ("host", 1), "the driver's own table was changed"


def test_a_delegate_can_only_be_narrowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOST_DELEGATE", "0")
    copy = shutil.copy(HOST, tmp_path / "lib.so")  # with a table of its own
    with pytest.raises(
        loader.LoaderError, match=r"does not declare the delegate cpu, and driver\.toml may only narrow"
    ):
        Driver(str(copy), delegate="cpu")
    with pytest.raises(loader.LoaderError, match='unknown delegate "gpu"; expected none or cpu'):
        Driver(str(copy), delegate="gpu")


def test_the_loader_does_not_depend_on_pytorch() -> None:
    needed = subprocess.run(["ldd", str(loader.LIBRARY)], capture_output=True, text=True, check=True).stdout
    libraries = [line.split()[0] for line in needed.splitlines()]  # not the addresses, which are hexadecimal
    assert libraries and not [name for name in libraries if "torch" in name or "c10" in name]
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(loader.LIBRARY)], capture_output=True, text=True, check=True
    )
    ours = {line.split()[-1] for line in symbols.stdout.splitlines() if "isthmus" in line}
    assert ours == {"isthmus_open_driver", "isthmus_open_operators"}


def test_the_headers_are_those_of_the_sources() -> None:
    for header in (CORE / "csrc").glob("*.h"):
        assert (Path(isthmus.include_path()) / header.name).read_bytes() == header.read_bytes(), "run make"


def test_structures_are_laid_out_as_by_the_compiler(tmp_path: Path) -> None:
    found = {**interface.driver_header().structures, **interface.operators_header().structures}
    assert {"isthmus_driver", "isthmus_telemetry", "isthmus_operator", "isthmus_context"} <= set(found)
    lines = [
        f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
        for name, kind in found.items()
        for field, *_ in kind._fields_
    ]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in found]
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    head = '#include <stdio.h>\n#include "operators.h"\nint main(void) {\n'
    source.write_text(head + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run(["cc", str(source), "-o", str(program), *INCLUDES], check=True)
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, value = line.split()
        name, _, field = name.partition(".")
        ours = getattr(found[name], field).offset if field else ctypes.sizeof(found[name])
        assert ours == int(value), line


def test_enumerations_agree_with_the_header() -> None:
    enumerations = interface.driver_header().enumerations
    for kind, name, prefix in (
        (interface.Status, "isthmus_status", "ISTHMUS_"),
        (interface.CopyKind, "isthmus_copy_kind", "ISTHMUS_"),
        (interface.MemoryKind, "isthmus_memory_kind", "ISTHMUS_MEMORY_"),
    ):
        assert {prefix + member.name: int(member) for member in kind} == enumerations[name]
    codes = {re.sub("isthmus_", "", k.lower()): v for k, v in enumerations["isthmus_dtype"].items()}
    assert {row.name.removesuffix("fn"): row.code for row in dt.DTYPES.values()} == codes
