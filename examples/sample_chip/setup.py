"""Build the two libraries of the chip with the headers of Isthmus, without PyTorch."""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from tvm_ffi.libinfo import find_include_path

import isthmus


def library(name: str, link: list[str]) -> Extension:
    """A shared library of one source."""
    return Extension(
        f"sample_chip.{name}",
        sources=[f"csrc/{name}.cpp"],
        include_dirs=[str(isthmus.include_path()), find_include_path()],
        extra_compile_args=["-std=c++17", "-Wall", "-Wextra", "-fvisibility=hidden"],
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
        library("driver", ["-pthread", "-Wl,-z,nodelete"]),
        library("operators", []),
    ],
    cmdclass={"build_ext": Build},
)
