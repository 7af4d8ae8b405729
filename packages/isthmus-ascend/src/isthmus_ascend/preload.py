"""Load the reference runtime where torch_npu is imported and the vendor's libraries are absent.

An installed torch_npu is imported by ``import torch``, which would fail without them. The wheel of Isthmus calls
:func:`install` when Python starts (``isthmus-ascend.pth``, written by setup.py), so it imports nothing else.
"""

import sys


class Preload:
    """A finder of modules that finds none: it loads the libraries at the first import of a part of torch_npu.

    That import comes after torch_npu has imported torch, and before it loads its own libraries.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Return None, so that another finder finds the module."""
        if fullname.startswith("torch_npu.") and self in sys.meta_path:
            sys.meta_path.remove(self)
            _load()


def install() -> None:
    """Load the libraries when torch_npu is imported."""
    sys.meta_path.insert(0, Preload())


def _load() -> None:
    """Load the libraries, and set the variables of ``isthmus ascend run`` in this process."""
    import ctypes
    import os

    from isthmus_ascend.environment import LIBRARIES, PYTHON, NotBuilt, operators, variables

    try:
        ctypes.CDLL("libascendcl.so")  # the vendor's, or already on LD_LIBRARY_PATH
    except OSError:
        try:
            os.environ.update(variables())
            folders = LIBRARIES, operators()
        except NotBuilt:
            return  # torch_npu reports the missing library
        sys.path.append(str(PYTHON))
        for folder in folders:
            for library in folder.glob("*.so"):
                ctypes.CDLL(str(library))
