"""Builds the reference runtime of AscendCL and the driver over it; with PyTorch the aclnn functions of libopapi.so.

They are compiled against the headers that isthmus installs; libopapi.so once for each PyTorch, as the core of isthmus
is (ISTHMUS_TORCH). The rest of the package is described in pyproject.toml.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# In a checkout isthmus-common may not be installed yet.
sys.path.insert(0, str(ROOT.parent / "isthmus-common" / "src"))

import isthmus  # noqa: E402
from isthmus_common.pytorch import Target, targets  # noqa: E402

BUILD = ROOT / "build"
GROUPS = BUILD / "groups"
# Sources that the build writes, and the commands that print them.
GENERATED = {
    "ascend_options.h": ("-m", "isthmus_common.options_header", "isthmus_ascend.options"),
    "ascend_products.h": ("-m", "isthmus_ascend.generate.product_names"),
    "aclnn_functions.h": ("-m", "isthmus_ascend.generate.functions"),
    "opapi_products.cpp": ("-m", "isthmus_ascend.generate.limits"),
    "opapi_exports.cpp": ("-m", "isthmus_ascend.generate.exports"),
}
HOME = "isthmus_ascend.home."
LIBRARIES = f"{HOME}lib64."
# Libraries and their folders of csrc. All are linked with the first.
RUNTIME = "libascendcl"
FOLDERS = {RUNTIME: "acl", "libacl_op_compiler": "op_compiler", "libhccl": "hccl"}
OPERATORS = "libopapi"
# Names under which torch_npu looks for functions of other libraries.
OPERATORS_TOO, HCCL_TOO, PROFILER_TOO = "libnnopbase", "libhcomm", "libmsprofiler"
# Libraries that torchair, a part of torch_npu, is linked with, and the source of csrc/stand_ins of each.
STAND_INS = {
    "libge_runner": "graph_engine",
    "libacl_tdt_channel": "channel",
    "libgraph": "empty",
    "libfmk_parser": "empty",
    "libascend_protobuf": "empty",
    "libascend_hal": "driver",
}
TABLES = ["csrc/opapi/functions.table", "csrc/opapi/older.table", "csrc/opapi/products.table"]

DEBUG = os.environ.get("ISTHMUS_BUILD_DEBUG") == "1"
FLAGS = [
    *(["-O0", "-g"] if DEBUG else ["-g0"]),
    *("--param", "ggc-min-heapsize=524288"),  # GCC collects garbage from there on: 9% faster than from 128 MB
    *("-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra"),
]
# Sources of one folder that are compiled together: their headers are parsed once for all of them.
GROUP = 8

HAS_TORCH = find_spec("torch") is not None
if HAS_TORCH:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

    from torch.utils.cpp_extension import BuildExtension
else:
    BuildExtension = build_ext


def sources(folder: str) -> list[str]:
    """C++ sources of csrc/<folder>, relative to the root as setuptools asks."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc" / folder).glob("*.cpp"))


def headers() -> list[str]:
    """Every header; a change of one makes setuptools ask ninja, which knows who includes it."""
    own = (str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.h"))
    return [*sorted(own), *map(str, sorted(Path(isthmus.include_path()).glob("*.h")))]


def grouped(folder: str) -> list[str]:
    """Return generated sources, each of which includes some of csrc/<folder>; a debug build keeps them single."""
    names = sources(folder)
    if DEBUG:
        return names
    count = -(-len(names) // GROUP)
    groups = [names[len(names) * i // count : len(names) * (i + 1) // count] for i in range(count)]
    paths = [GROUPS / f"{folder.replace('/', '_')}_{i}.cpp" for i in range(1, count + 1)]
    for path, group in zip(paths, groups, strict=True):
        write_if_changed(path, "".join(f'#include "{name.removeprefix("csrc/")}"\n' for name in group))
    return [str(path.relative_to(ROOT)) for path in paths]


def portable() -> str:
    """Return a source of every library; those of isthmus have it too."""
    write_if_changed(path := GROUPS / "portable_glibc.cpp", '#include "portable_glibc.h"\n')
    return str(path.relative_to(ROOT))


def write_if_changed(path: Path, text: str) -> None:
    """Write the file; leave it untouched if it has this text."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text)
    beside.replace(path)


def printed(*words: str) -> str:
    """Return what this Python prints, with this package."""
    paths = filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def tvm_ffi() -> str:
    """Headers of apache-tvm-ffi, found without importing it (it would import torch)."""
    spec = find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("isthmus-ascend: the build needs apache-tvm-ffi; do `pip install apache-tvm-ffi`")
    return str(Path(spec.submodule_search_locations[0]) / "include")


def library(
    name: str, paths: list[str], flags: list[str], link: list[str], libraries: list[str], **more: list
) -> Extension:
    """One shared library; worker threads may outlive a dlclose()."""
    return Extension(
        name,
        sources=[*paths, portable()],
        depends=[*headers(), *TABLES, *(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*.cpp"))],
        include_dirs=[str(ROOT / "csrc"), str(BUILD), isthmus.include_path()],
        extra_compile_args=[*flags, *FLAGS],
        extra_link_args=[*link, "-Wl,-z,nodelete"],
        libraries=libraries,
        language="c++",
        **more,
    )


def runtime_library(name: str, paths: list[str]) -> Extension:
    """One library of the reference runtime, which sees nothing of PyTorch. Applications are linked with its name."""
    others = [] if name == RUNTIME else [RUNTIME.removeprefix("lib")]
    link = [f"-Wl,-soname,{name}.so", "-Wl,-rpath,$ORIGIN"]
    return library(LIBRARIES + name, paths, ["-std=c++17", "-O2"], link, [*others, "pthread", "dl"])


def alias(name: str, of: str, folder: str = LIBRARIES) -> Extension:
    """A library that is empty but for what it is linked with: another one, of its folder."""
    made = runtime_library(name, ["csrc/stand_ins/empty.cpp"])
    made.name = folder + name
    made.extra_link_args += ["-Wl,--no-as-needed", f"-l{of.removeprefix('lib')}"]
    return made


def lookups() -> Extension:
    """The library that `isthmus ascend run --report` preloads; it defines a function of the C library."""
    made = runtime_library("libisthmus_lookups", ["csrc/stand_ins/lookups.cpp"])
    made.sources = ["csrc/stand_ins/lookups.cpp"]
    made.libraries = ["dl"]
    return made


def operators(against: Target) -> Extension:
    """The aclnn functions of the reference runtime, on PyTorch's CPU kernels."""
    folders = ("opapi", "opapi/functions", "opapi/older")
    return library(
        f"{HOME}{against.package}.{OPERATORS}",
        [
            *(path for folder in folders for path in grouped(folder)),
            "build/opapi_exports.cpp",
            "build/opapi_products.cpp",
        ],
        [*against.include_flags, "-std=c++20", "-O2"],
        [f"-Wl,-soname,{OPERATORS}.so", "-Wl,-rpath,$ORIGIN/../lib64"],
        [RUNTIME.removeprefix("lib"), "c10", "torch", "torch_cpu"],
        library_dirs=[against.library_folder],
        define_macros=against.macros,
    )


def driver() -> Extension:
    """The driver over AscendCL. One symbol goes out."""
    link = [f"-Wl,--version-script={ROOT / 'csrc/driver/exports.map'}"]
    libraries = ["pthread", "rt", "dl"]
    name = "isthmus_ascend.driver.libisthmus_ascend"
    return library(name, grouped("driver"), ["-std=c++17", "-O3"], link, libraries)


def driver_operators() -> Extension:
    """The operator library over aclnn: it sees the interface of operators and nothing of PyTorch."""
    flags = ["-isystem", tvm_ffi(), "-DISTHMUS_OPERATORS_IMPLEMENTATION", "-std=c++17", "-O2"]
    return library("isthmus_ascend.driver.libisthmus_aclnn", grouped("driver/operators"), flags, [], ["dl"])


def extensions() -> list[Extension]:
    """Everything that can be compiled here."""
    return [
        driver(),
        driver_operators(),
        *(runtime_library(name, grouped(folder)) for name, folder in FOLDERS.items()),
        alias(HCCL_TOO, "libhccl"),
        alias(PROFILER_TOO, RUNTIME),
        *(runtime_library(name, [f"csrc/stand_ins/{source}.cpp"]) for name, source in STAND_INS.items()),
        lookups(),
        *(operators(each) for each in targets()),
        *(alias(OPERATORS_TOO, OPERATORS, f"{HOME}{each.package}.") for each in targets()),
    ]


class Build(BuildExtension):
    """Keeps objects in build/, so that an editable install and a later build share them."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = str(BUILD)

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"  # opened with dlopen, never imported

    def build_extension(self, ext: Extension) -> None:
        runtime = self.get_ext_fullpath(LIBRARIES + RUNTIME)
        folders = dict.fromkeys(str(Path(path).parent) for path in (self.get_ext_fullpath(ext.name), runtime))
        ext.library_dirs = [*folders, *ext.library_dirs]
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
        home = (ROOT / "src" if in_place else Path(self.build_lib)) / "isthmus_ascend" / "home"
        folders = ["lib64", *(each.package for each in targets())]
        for name in folders:  # git keeps no folder of ignored files
            (home / name).mkdir(mode=0o750, parents=True, exist_ok=True)
        super().run()
        add_host_driver(home / "lib64", link=in_place)
        if not in_place:  # of an earlier build, for another PyTorch
            for other in home.glob("torch_*"):
                if other.name not in folders:
                    shutil.rmtree(other)


def add_host_driver(folder: Path, link: bool) -> None:
    """Put the driver of isthmus's host chip, which the runtime opens, beside the libraries."""
    driver = Path(isthmus.__file__).parent / "drivers" / "host" / "libisthmus_host.so"
    place = folder / driver.name
    place.unlink(missing_ok=True)
    if link:
        place.symlink_to(os.path.relpath(driver, folder))
    else:
        shutil.copy(driver, place)


class BuildPython(build_py):
    """Adds to a wheel what Python runs when it starts."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            text = "import isthmus_ascend.preload; isthmus_ascend.preload.install()\n"
            write_if_changed(Path(self.build_lib) / "isthmus-ascend.pth", text)


class BuildWheel(bdist_wheel):
    """Name the wheel for every Python: no library has to do with Python's binary interface."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, of its binary interface and of the platform."""
        return "py3", "none", super().get_tag()[2]


# ISTHMUS_BUILD=none installs only the Python part; make does that while it compiles the rest in place.
setup(
    ext_modules=[] if os.environ.get("ISTHMUS_BUILD") == "none" else extensions(),
    cmdclass={"bdist_wheel": BuildWheel, "build_ext": Build, "build_py": BuildPython},
)
