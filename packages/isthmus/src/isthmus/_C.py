"""Opens the C++ core that fits the imported PyTorch, and takes its place: ``isthmus._C`` is the compiled module."""

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import torch

from isthmus import binaries


def _open() -> None:
    folder = binaries.find(torch.__version__).folder
    path = next((path for suffix in EXTENSION_SUFFIXES if (path := folder / f"_C{suffix}").is_file()), None)
    if path is None:
        raise ImportError(f"no core for this Python in {folder}; run `isthmus build`")
    spec = importlib.util.spec_from_file_location(__name__, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


_open()
