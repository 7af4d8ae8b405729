"""Builds what is compiled: the loader and the host driver; with PyTorch the core and the kernels.

These are compiled once for each PyTorch: the installed one, or those whose folders ISTHMUS_TORCH names, separated by
colons; the installed one then compiles for them, and none of them is imported. The rest of the package is described
in pyproject.toml.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
COMMON = ROOT.parent / "isthmus-common" / "src"  # of a checkout, where it may not be installed yet
sys.path[:0] = [str(ROOT / "src"), str(COMMON)]  # `isthmus build` has the installed packages instead

from isthmus import binaries  # noqa: E402
from isthmus_common.pytorch import Target, targets  # noqa: E402

BUILD = ROOT / "build"
GROUPS = BUILD / "groups"
# Headers that the build writes, and the commands that print them.
GENERATED = {
    "isthmus_ops.h": ("-m", "isthmus.opset.header"),
    "isthmus_options.h": ("-m", "isthmus_common.options_header", "isthmus.options"),
}
BINARIES = "isthmus.binaries."
LOADER = "isthmus.libisthmus_loader"
HOST_DRIVER = "isthmus.drivers.host.libisthmus_host"
# The loader is compiled into the core too, so that the core is one file that looks for no other at run time.
CORE_FOLDERS = (
    "core",
    "memory",
    "memory/policies",
    "dispatch",
    "dispatch/operators",
    "dispatch/layouts",
    "collectives",
    "collectives/driver",
    "collectives/gloo",
    "collectives/diagnostics",
    "bindings",
    "loader",
)
HOST_FOLDERS = ("drivers/host", "drivers/host/collectives")
EXPORTS = "csrc/drivers/host/exports.map"

WARNINGS = ["-Wall", "-Wextra"]
DEBUG = os.environ.get("ISTHMUS_BUILD_DEBUG") == "1"
OPTIMIZATION = ["-O0", "-g"] if DEBUG else ["-g0"]
# Sources of one folder that are compiled together: their headers are parsed once for all of them. More per
# group makes the whole build faster, and the rebuild after a change of one source slower.
GROUP = 8
KERNEL_GROUP = 2
# GCC collects garbage from 128 MB on; half a GB makes it 9% faster and changes no object.
COMPILER = ["--param", "ggc-min-heapsize=524288"]
HIDDEN = ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]

HAS_TORCH = find_spec("torch") is not None
if HAS_TORCH:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # an older installation of this package

    import torch
    from torch.utils.cpp_extension import BuildExtension
else:
    BuildExtension = build_ext


def sources(folder: str) -> list[str]:
    """C++ sources of csrc/<folder>, relative to the root as setuptools asks."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc" / folder).glob("*.cpp"))


def grouped(folder: str, size: int = GROUP) -> list[str]:
    """Return one generated source per `size` sources of csrc/<folder>; a debug build keeps them single."""
    names = sources(folder)
    if DEBUG:
        return names
    count = -(-len(names) // size)
    parts = [names[len(names) * i // count : len(names) * (i + 1) // count] for i in range(count)]
    return [write_group(f"{folder.replace('/', '_')}_{i + 1}.cpp", part) for i, part in enumerate(parts)]


def portable() -> str:
    """Return a source of every library: wheels run on older systems than the one that built them."""
    return write_group("portable_glibc.cpp", ["portable_glibc.h"])


def write_group(name: str, members: list[str]) -> str:
    """Write build/groups/<name>, which includes the members; leave an unchanged file untouched."""
    text = "".join(f'#include "{member.removeprefix("csrc/")}"\n' for member in members)
    write_if_changed(GROUPS / name, text)
    return str((GROUPS / name).relative_to(ROOT))


def write_if_changed(path: Path, text: str) -> None:
    """Write the file; leave it untouched if it has this text."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text)
    beside.replace(path)


def headers() -> list[str]:
    """Every header; a change of one makes setuptools ask ninja, which knows who includes it."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.h"))


def operator_interface() -> str:
    """Headers of apache-tvm-ffi, found without importing it (it would import torch)."""
    spec = find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("isthmus: the build needs apache-tvm-ffi; do `pip install apache-tvm-ffi`")
    return str(Path(spec.submodule_search_locations[0]) / "include")


def core(against: Target) -> Extension:
    """isthmus._C: what PyTorch asks of a device."""
    system = [*against.include_flags, "-isystem", operator_interface()]
    return Extension(
        f"{BINARIES}{against.package}._C",
        sources=[*(path for folder in CORE_FOLDERS for path in grouped(folder)), portable()],
        depends=[*headers(), *(path for folder in CORE_FOLDERS for path in sources(folder))],
        include_dirs=[str(ROOT / "csrc"), str(BUILD)],
        define_macros=against.macros,
        extra_compile_args=[*system, "-std=c++20", "-O2", *COMPILER, *OPTIMIZATION, *HIDDEN, *WARNINGS],
        library_dirs=[against.library_folder],
        libraries=["c10", "torch", "torch_cpu", "torch_python", "dl"],
        language="c++",
    )


def loader() -> Extension:
    """Opens drivers and operator libraries for Python code that runs without PyTorch."""
    return Extension(
        LOADER,
        sources=[*grouped("loader"), portable()],
        depends=[*headers(), *sources("loader")],
        include_dirs=[str(ROOT / "csrc"), str(BUILD)],
        define_macros=[("ISTHMUS_LOADER_LIBRARY", None)],
        extra_compile_args=[
            *("-isystem", operator_interface(), "-std=c++17", "-O2"),
            *(*COMPILER, *OPTIMIZATION, *HIDDEN, *WARNINGS),
        ],
        libraries=["dl"],
        language="c++",
    )


def driver(name: str, folders: tuple[str, ...]) -> Extension:
    """A driver: an ordinary shared library that sees csrc/driver.h and nothing of PyTorch."""
    return Extension(
        name,
        sources=[*(path for folder in folders for path in grouped(folder)), portable()],
        depends=[*headers(), EXPORTS, *(path for folder in folders for path in sources(folder))],
        include_dirs=[str(ROOT / "csrc"), str(BUILD)],
        extra_compile_args=["-std=c++17", "-O3", *COMPILER, *OPTIMIZATION, *HIDDEN, *WARNINGS],
        # The library exports one symbol, and worker threads may outlive a dlclose().
        extra_link_args=[f"-Wl,--version-script={ROOT / EXPORTS}", "-Wl,-z,nodelete"],
        libraries=["pthread", "rt", "dl"],
        language="c++",
    )


# What at::vec needs for each capability that PyTorch may report; any other builds for the baseline.
CAPABILITIES = {
    "AVX512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma", "-mf16c"],
    "AVX2": ["-mavx2", "-mfma", "-mf16c"],
    "DEFAULT": [],
}


def capability() -> str:
    """Return the instruction set of the kernels: ISTHMUS_KERNELS, or this machine's as PyTorch names it."""
    asked = os.environ.get("ISTHMUS_KERNELS") or torch.backends.cpu.get_cpu_capability()
    if os.environ.get("ISTHMUS_KERNELS") and asked not in CAPABILITIES:
        raise SystemExit(f"isthmus: ISTHMUS_KERNELS={asked} is none of {', '.join(CAPABILITIES)}")
    return asked if asked in CAPABILITIES else "DEFAULT"


def kernels(against: Target) -> Extension:
    """The fused operators' CPU kernels: they serve plain CPU tensors too, so they are no part of the core.

    Not linked with OpenMP: its symbols are those of the library that PyTorch has loaded for all.
    """
    chosen = capability()
    return Extension(
        f"{BINARIES}{against.package}.{binaries.KERNELS.removesuffix('.so')}",
        sources=[*grouped("kernels", KERNEL_GROUP), portable()],
        depends=[*headers(), *sources("kernels")],
        include_dirs=[str(ROOT / "csrc"), str(BUILD)],
        define_macros=[*against.macros, ("CPU_CAPABILITY", chosen), (f"CPU_CAPABILITY_{chosen}", None)],
        extra_compile_args=[
            *(*against.include_flags, "-std=c++20", "-O3", "-fopenmp", "-fno-math-errno"),
            "-fno-trapping-math",
            "-ffp-contract=off",  # a difference of two equal products is 0
            *(*CAPABILITIES[chosen], *COMPILER, *OPTIMIZATION, *HIDDEN, *WARNINGS),
            # GCC 12 says it of its own AVX512 intrinsics, which begin with an undefined register on purpose.
            *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
        ],
        library_dirs=[against.library_folder],
        libraries=["c10", "torch", "torch_cpu"],
        language="c++",
    )


class Build(BuildExtension):
    """Keeps objects in build/, so that an editable install and a later build share them."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = str(BUILD)

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.rpartition(".")[2].startswith("lib"):  # opened with dlopen, never imported
            return str(Path(*fullname.split("."))) + ".so"
        return super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        outer = self.build_temp
        self.build_temp = str(Path(outer) / ext.name)
        try:
            super().build_extension(ext)
        finally:
            self.build_temp = outer

    def build_extensions(self) -> None:
        os.environ.setdefault("MAX_JOBS", str(len(os.sched_getaffinity(0))))
        super().build_extensions()

    def run(self) -> None:
        for name, words in GENERATED.items():
            write_if_changed(BUILD / name, printed(*words))
        in_place = self.inplace or getattr(self, "editable_mode", False)
        package = (ROOT / "src" if in_place else Path(self.build_lib)) / "isthmus"
        copy_headers(package / "include")
        for each in targets():  # git keeps no folder of ignored files
            (package / "binaries" / each.package).mkdir(mode=0o750, parents=True, exist_ok=True)
        super().run()
        for each in targets():
            write_build_record(package / "binaries" / each.package / binaries.RECORD, each)
        if not in_place:
            remove_other_binaries(package)


def printed(*words: str) -> str:
    """Return what this Python prints, with the packages of this workspace."""
    places = [str(ROOT / "src"), str(COMMON), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)  # the program has said why
    return done.stdout


def copy_headers(folder: Path) -> None:
    """Install what makers of chips compile against: the headers at the top of csrc, and that of the opset."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    for header in (*sorted((ROOT / "csrc").glob("*.h")), BUILD / "isthmus_ops.h"):
        shutil.copy(header, beside := folder / f".{header.name}")
        beside.chmod(0o640)
        beside.replace(folder / header.name)


def write_build_record(path: Path, against: Target) -> None:
    """Record what was compiled against and for; isthmus.binaries reads it."""
    write_if_changed(path, json.dumps({"torch": against.version, "kernels": capability()}) + "\n")


def remove_other_binaries(package: Path) -> None:
    """Drop what an earlier build, for another PyTorch, left where this one collects its files."""
    for folder in (package / "binaries").glob("torch_*"):
        if folder.name not in [each.package for each in targets()]:
            shutil.rmtree(folder)


def extensions() -> list[Extension]:
    """Everything that can be compiled here."""
    for_torch = [make(each) for each in targets() for make in (core, kernels)]
    if os.environ.get("ISTHMUS_BUILD") == "binaries":  # `isthmus build`, which adds them to an installation
        return for_torch
    return [loader(), driver(HOST_DRIVER, HOST_FOLDERS), *for_torch]


class BuildPython(build_py):
    """Adds the sources of the core to a wheel, for `isthmus build`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            source = Path(self.build_lib) / "isthmus" / "source"
            shutil.copytree(ROOT / "csrc", source / "csrc", dirs_exist_ok=True)
            shutil.copy(ROOT / "setup.py", source / "setup.py")


# ISTHMUS_BUILD=none installs only the Python part; make does that while it compiles the rest in place.
setup(
    package_dir={"": "src"},  # `isthmus build` has no pyproject.toml, and compiles in place
    ext_modules=[] if os.environ.get("ISTHMUS_BUILD") == "none" else extensions(),
    cmdclass={"build_ext": Build, "build_py": BuildPython},
)
