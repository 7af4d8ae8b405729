"""Load operator libraries: shared libraries (operators.h) and Python files (isthmus.opset.library).

Every operator is the address of a function with TVM-FFI's C signature and its handle, so that callers need neither
PyTorch nor Python.
"""

import ctypes
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from isthmus import opset
from isthmus.drivers import interface, loader
from isthmus.opset.library import Library
from isthmus.opset.schema import Schema

_NAMESPACES = ("aten", "isthmus")  # namespaces whose operators the opset specifies
_OBJECT_HEADER_BYTES = 24  # sizeof(TVMFFIObject); a function's cell follows it and begins with the address


class LibraryError(loader.LoaderError):
    """An operator library cannot be used; the message is one line: path, what is wrong, remedy."""


class LoadedOperator(NamedTuple):
    """An operator of a library.

    Attributes:
        name: overload of the opset, such as ``aten::add.Tensor``.
        dtypes: bit mask of ``isthmus_dtype`` (``isthmus.opset.dtypes.mask``).
        flags: ``ISTHMUS_OPERATOR_*`` of operators.h.
        call: address of a ``TVMFFISafeCallType``.
        handle: its first argument.
    """

    name: str
    dtypes: int
    flags: int
    call: int
    handle: int


class OperatorLibrary:
    """An opened library. Its addresses are valid while it is referenced.

    Attributes:
        name: short name.
        description: one line.
        path: the file.
        operators: its operators, by overload.
    """

    def __init__(
        self, name: str, description: str, path: str, operators: dict[str, LoadedOperator], owner: Any
    ) -> None:
        self.name, self.description, self.path, self.operators = name, description, path, operators
        self._owner = owner


def load(path: str) -> OperatorLibrary:
    """Open an operator library.

    Args:
        path: a shared library, or a Python file with a module-level ``library``.

    Raises:
        LibraryError: the file does not exist or cannot be used.
    """
    path = str(Path(path).expanduser().absolute())  # dlopen searches other folders for a bare name
    if not Path(path).is_file():
        raise LibraryError(f"operator library {path} is not a file; check `operators` in driver.toml.")
    return _load_python(path) if path.endswith(".py") else _load_shared(path)


def _load_shared(path: str) -> OperatorLibrary:
    runtime = ctypes.CDLL(str(_runtime_folder() / "lib" / "libtvm_ffi.so"))  # the library may link to it
    table = interface.operators_header().structures["isthmus_operator_library"]
    found = ctypes.POINTER(table)()
    try:
        loader.call("isthmus_open_operators", path.encode(), ctypes.byref(found))
    except loader.LoaderError as error:
        raise LibraryError(str(error)) from None
    library = found.contents
    operators = {}
    for row in _rows(library):
        name = row.name.decode()
        schema_of(name, path)
        operators[name] = LoadedOperator(name, row.dtypes, row.flags, row.call or 0, row.function or 0)
    return OperatorLibrary(library.name.decode(), library.description.decode(), path, operators, runtime)


def _rows(library: Any) -> list[Any]:
    row = interface.operators_header().structures["isthmus_operator"]
    return [row.from_address(library.operators + i * library.operator_size) for i in range(library.count)]


def _load_python(path: str) -> OperatorLibrary:
    library = _import(path)
    tvm_ffi = import_tvm_ffi()
    operators, functions = {}, []
    for name, entry in library.entries.items():
        schema = schema_of(name, path)
        try:
            function = tvm_ffi.convert(library.function(name, schema))
        except ValueError as error:
            raise LibraryError(f"operator library {path}: {error}") from None
        functions.append(function)
        operators[name] = LoadedOperator(name, entry.dtypes, entry.flags, *address_of(function))
    return OperatorLibrary(library.name, library.description, path, operators, (library, functions))


def address_of(function: Any) -> tuple[int, int]:
    """Address and handle of a ``tvm_ffi.Function``, which must outlive their use."""
    handle: int = function.__chandle__()
    return ctypes.c_void_p.from_address(handle + _OBJECT_HEADER_BYTES).value or 0, handle


def _import(path: str) -> Library:
    """Import a Python file under a unique module name; return its ``library``."""
    library = getattr(import_file(path, "operator library"), "library", None)
    if not isinstance(library, Library):
        raise LibraryError(f"operator library {path} has no `library = Library(...)` at module level.")
    return library


def import_file(path: str, what: str) -> ModuleType:
    """Import a Python file under a unique module name. It finds modules beside it.

    Args:
        what: names it in messages.

    Raises:
        LibraryError: it is not a Python file, or fails on import.
    """
    name = f"isthmus._operators_{abs(hash(str(Path(path).resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LibraryError(f"{what} {path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look up a module by its name
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LibraryError(f"{what} {path} fails on import: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module


def schema_of(name: str, path: str) -> Schema | None:
    """Return the schema of a library's operator; None for an extension in another namespace than the opset's.

    Raises:
        LibraryError: the opset does not have the operator, or the name has no namespace; suggests the nearest one.
    """
    if "::" not in name:
        near = difflib.get_close_matches(f"aten::{name}", opset.records(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise LibraryError(f"operator library {path}: the operator {name!r} has no namespace{hint}")
    if name.partition("::")[0] not in _NAMESPACES:
        return None
    try:
        return opset.schema_of(name)
    except LookupError as error:
        raise LibraryError(f"operator library {path}: {error.args[0]}") from None


@cache
def _runtime_folder() -> Path:
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise LibraryError("operator libraries need TVM-FFI; run `pip install apache-tvm-ffi`")
    return Path(spec.submodule_search_locations[0])


def import_tvm_ffi() -> Any:
    """Import ``tvm_ffi`` without letting it import PyTorch.

    If PyTorch is already imported, tvm_ffi uses it.
    """
    return without_torch(lambda: importlib.import_module("tvm_ffi"))


def without_torch(body: Callable[[], Any]) -> Any:
    """Run a function while ``import torch`` fails, unless torch is already imported; return the result."""
    if "torch" in sys.modules:
        return body()
    masked: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    masked["torch"] = None
    try:
        return body()
    finally:
        del masked["torch"]
