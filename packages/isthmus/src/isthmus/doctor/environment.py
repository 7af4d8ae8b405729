"""Check environment variables read by PyTorch, its launchers, the dynamic loader and Isthmus."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from isthmus.doctor.libraries import find
from isthmus_common.finding import Finding, fail, ok, warning

_SUBJECT = "environment"
_RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_RANK_OF = {"RANK": "WORLD_SIZE", "LOCAL_RANK": "LOCAL_WORLD_SIZE"}
_LAST_PORT = 65535
# Variable read by NCCL's process group only -> the chip's counterpart.
_NCCL_COUNTERPARTS = {
    "NCCL_SOCKET_IFNAME": "GLOO_SOCKET_IFNAME",
    "TORCH_NCCL_BLOCKING_WAIT": "ISTHMUS_BLOCKING_WAIT",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "ISTHMUS_FLIGHT_RECORDER",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "ISTHMUS_FLIGHT_RECORDER_FOLDER",
}
# Variable of a vendor's installation -> its library, which the loader finds by LD_LIBRARY_PATH.
_VENDORS = {"CUDA_HOME": "libcudart.so*", "ASCEND_HOME_PATH": "libascendcl.so*"}


def options() -> Iterator[Finding]:
    """Check the options of Isthmus that are set, including misspelt ones."""
    from isthmus import config

    for option in config.options():
        if option.problem:
            text, _, remedy = f"{option.variable}={option.value}: {option.problem}".partition("; ")
            yield fail("options", text, remedy or "`isthmus env` lists the allowed values")
        elif option.is_set:
            yield ok("options", f"{option.variable}={option.value}")
    for name in config.unknown_variables():
        yield fail("options", f"{name} is set, but is not an option", "`isthmus env` lists them")


def examine() -> Iterator[Finding]:
    """Check the variables of PyTorch, its launchers and the loader."""
    findings = list(judge(os.environ))
    yield from findings
    if not findings:
        yield ok(_SUBJECT, "no contradictions")


def judge(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Yield warnings and failures about a set of variables."""
    for check in (
        _autoload,
        _devices,
        _nccl,
        _allocator,
        _threads,
        _ranks,
        _preload,
        _check_temporary_folder,
        _paths,
        _vendors,
        _cuda_runtime,
        _proxies,
    ):
        yield from check(variables)


def has_cuda() -> bool:
    """Whether a driver for CUDA devices is loaded, without calling a CUDA library."""
    return any(Path(file).exists() for file in ("/dev/nvidiactl", "/dev/dxg"))


def _autoload(variables: Mapping[str, str]) -> Iterator[Finding]:
    value = variables.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    if value != "1":
        text = f"TORCH_DEVICE_BACKEND_AUTOLOAD={value}: `import torch` loads no plugin, so there is no chip"
        yield warning(_SUBJECT, text, "unset TORCH_DEVICE_BACKEND_AUTOLOAD")


def _devices(variables: Mapping[str, str]) -> Iterator[Finding]:
    value = variables.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return
    hidden = value.strip() in ("", "-1")
    if hidden:
        text = (
            f"CUDA_VISIBLE_DEVICES={value}: every CUDA device is hidden, and under `isthmus run` every chip"
        )
        yield warning(_SUBJECT, text, "unset CUDA_VISIBLE_DEVICES if a job is to use them")
    elif not has_cuda():
        text = f"CUDA_VISIBLE_DEVICES={value} selects chips under `isthmus run` only"
        yield warning(
            _SUBJECT, text, "set ISTHMUS_VISIBLE_DEVICES for programs that name the chip themselves"
        )


def _nccl(variables: Mapping[str, str]) -> Iterator[Finding]:
    for name, counterpart in _NCCL_COUNTERPARTS.items():
        if name in variables and counterpart not in variables and not has_cuda():
            text = f"{name}={variables[name]} is read by NCCL only"
            yield warning(_SUBJECT, text, f"set {counterpart} too for the chip's collectives")


def _allocator(variables: Mapping[str, str]) -> Iterator[Finding]:
    names = ("ISTHMUS_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    there = [name for name in names if variables.get(name)]
    for name in names[1:]:  # the first is an option of Isthmus, reported on its own line
        entries = filter(None, re.sub(r"\[[^]]*\]", "[]", variables.get(name, "")).split(","))
        if wrong := next((entry for entry in entries if not re.fullmatch(r"\s*\w+\s*:.*\S\s*", entry)), ""):
            text = f"{name}={variables[name]}: {wrong!r} is not an allocator option"
            yield fail(_SUBJECT, text, f"write option:value, such as max_split_size_mb:512, or unset {name}")
    if len({variables[name] for name in there}) > 1:
        text = f"{' and '.join(there)} differ; the chip's allocator reads {there[0]}"
        yield warning(_SUBJECT, text, "unset one of them")


def _threads(variables: Mapping[str, str]) -> Iterator[Finding]:
    value = variables.get("OMP_NUM_THREADS")
    if value is None:
        return
    cpus = len(os.sched_getaffinity(0))
    threads = _number(value.split(",")[0].strip())  # a list sets nested regions
    if not threads:
        text = f"OMP_NUM_THREADS={value} is not a number of threads"
        yield fail(_SUBJECT, text, f"set it to a number from 1 to {cpus}, or unset it")
    elif threads > cpus:
        text = f"OMP_NUM_THREADS={value} on {cpus} CPUs: the threads wait for each other"
        yield warning(_SUBJECT, text, f"set it to {cpus} or less, or unset it")


def _ranks(variables: Mapping[str, str]) -> Iterator[Finding]:
    there = [name for name in _RANKS if name in variables]
    if there and tuple(there) not in (
        _RANKS,
        _RANKS[:2],
    ):  # a program that sets its rank itself needs only the address
        missing = ", ".join(name for name in _RANKS if name not in variables)
        text = f"{', '.join(there)} set, {missing} not: init_process_group() cannot start"
        yield warning(_SUBJECT, text, "start ranks with torchrun or `isthmus run --nproc`, or unset them")
    for name in ("MASTER_PORT", *_RANK_OF, *_RANK_OF.values()):
        if name in variables and _number(variables[name]) is None:
            text = f"{name}={variables[name]} is not a number"
            yield fail(_SUBJECT, text, f"set {name} to a number, or unset it")
    for name, size in _RANK_OF.items():
        rank, ranks = _number(variables.get(name, "")), _number(variables.get(size, ""))
        if rank is not None and ranks is not None and rank >= ranks:
            text = f"{name}={rank} is not below {size}={ranks}"
            yield fail(_SUBJECT, text, "ranks count from 0; start them with torchrun, or unset both")
    port = _number(variables.get("MASTER_PORT", ""))
    if port is not None and not 0 < port <= _LAST_PORT:
        text = f"MASTER_PORT={port} is not a port number"
        yield fail(_SUBJECT, text, f"set it to a free port from 1 to {_LAST_PORT}, such as 29500")


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _check_temporary_folder(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check that TMPDIR exists: Python ignores a missing one, the host chip and other programs do not."""
    folder = variables.get("TMPDIR")
    if folder and not Path(folder).is_dir():
        yield fail(_SUBJECT, f"TMPDIR={folder}: no such folder", f"`mkdir -p {folder}`, or unset TMPDIR")


def _preload(variables: Mapping[str, str]) -> Iterator[Finding]:
    for library in variables.get("LD_PRELOAD", "").replace(":", " ").split():
        if "/" in library and not Path(library).is_file():
            text = f"LD_PRELOAD: {library}: no such file"
            yield warning(_SUBJECT, text, "remove it from LD_PRELOAD, or install it")


def _paths(variables: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        for entry in variables[name].split(os.pathsep) if variables.get(name) else ():
            if not entry:
                text = f"{name} has an empty entry, which means the current folder"
                yield warning(_SUBJECT, text, f"remove the extra {os.pathsep!r} from {name}")
            elif not Path(entry).exists():
                yield warning(_SUBJECT, f"{name}: {entry}: no such file or folder", f"remove it from {name}")
    for folder, library in _folders_with_library(variables, "libtorch*.so"):
        text = f"LD_LIBRARY_PATH: {library} in {folder} overrides PyTorch's own"
        yield fail(_SUBJECT, text, f"remove {folder} from LD_LIBRARY_PATH")


def _vendors(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check that libraries come from the installation that the vendor's variable names."""
    for name, pattern in _VENDORS.items():
        home = Path(variables.get(name, ""))
        for folder, library in _folders_with_library(variables, pattern) if variables.get(name) else ():
            # A link inside of the installation belongs to it.
            if not (folder.is_relative_to(home) or folder.resolve().is_relative_to(home.resolve())):
                text = f"LD_LIBRARY_PATH finds {library} in {folder}, but {name} is {home}"
                yield warning(
                    _SUBJECT,
                    text,
                    f"make both name the same installation: unset {name} or change LD_LIBRARY_PATH",
                )


def _cuda_runtime(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check for a CUDA runtime in LD_LIBRARY_PATH, which takes precedence over the one in PyTorch's wheel."""
    spec = find("torch")
    version = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = version.read_text(encoding="utf-8") if version and version.is_file() else ""
    built = re.search(r"^cuda\b.*= '(\d+)", text, re.MULTILINE)
    for folder, library in _folders_with_library(variables, "libcudart.so.[0-9]*"):
        if built and library.split(".")[2] != built[1]:
            text = f"LD_LIBRARY_PATH: {folder} has a {library}, PyTorch is built for CUDA {built[1]}"
            yield warning(_SUBJECT, text, f"remove {folder} from LD_LIBRARY_PATH")


def _folders_with_library(variables: Mapping[str, str], pattern: str) -> Iterator[tuple[Path, str]]:
    """Yield folders of LD_LIBRARY_PATH, other than PyTorch's, with a library of that name, and its file."""
    for entry in filter(None, variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        folder = Path(entry)
        library = next(iter(sorted(folder.glob(pattern))), None) if folder.is_dir() else None
        if library is not None and folder.resolve().parts[-2:] != ("torch", "lib"):
            yield folder, library.name


def _proxies(variables: Mapping[str, str]) -> Iterator[Finding]:
    proxies = [name for name in variables if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]
    spared = {
        host.strip() for name in ("no_proxy", "NO_PROXY") for host in variables.get(name, "").split(",")
    }
    if any(variables[name] for name in proxies) and not {"localhost", "127.0.0.1", "*"} & spared:
        text = f"{', '.join(sorted(proxies))} without localhost in no_proxy: local servers cannot be reached"
        yield warning(_SUBJECT, text, "no_proxy=localhost,127.0.0.1")
