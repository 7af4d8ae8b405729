"""Build the two libraries of the chip with the headers of Isthmus, without PyTorch."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from tvm_ffi.libinfo import find_include_path

import isthmus

FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-fvisibility=hidden"]
ROOT = Path(__file__).resolve().parent


def library(name: str, folder: str, flags: list[str], link: list[str]) -> Extension:
    """A shared library built from the sources of a folder."""
    return Extension(
        f"sample_chip.{name}",
        sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.cpp")),
        depends=sorted(str(path) for path in (ROOT / folder).glob("*.h")),
        include_dirs=[str(isthmus.include_path()), find_include_path()],
        extra_compile_args=[*FLAGS, *flags],
        extra_link_args=link,
        language="c++",
    )


class Build(build_ext):
    """Builds libraries for dlopen(), which are not Python modules."""

    def get_ext_filename(self, fullname: str) -> str:
        """File name of a library, such as ``sample_chip/driver.so``."""
        return f"{fullname.replace('.', '/')}.so"


setup(
    ext_modules=[
        # Worker threads may outlive a dlclose().
        library("driver", "csrc/driver", [], ["-pthread", "-Wl,-z,nodelete"]),
        # Integers wrap, as PyTorch's do.
        library("operators", "csrc/operators", ["-fwrapv"], []),
    ],
    cmdclass={"build_ext": Build},
)
