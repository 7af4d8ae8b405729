"""Opens the C++ core that fits the imported PyTorch, and takes its place: ``isthmus._C`` is the compiled module."""

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import torch

from isthmus import binaries


def _open() -> None:
    found = binaries.find(torch.__version__)
    files = [found.folder / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in files if path.is_file()), None)
    if path is None:
        raise ImportError(f"no core for this Python in {found.folder}; run `isthmus build`")
    spec = importlib.util.spec_from_file_location(__name__, path)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:  # a symbol that this build of PyTorch lacks
        why = f"built with PyTorch {found.torch}; found {torch.__version__}; run `isthmus build`"
        raise ImportError(f"{error}: {why}") from None
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


_open()
