"""Every option of Isthmus: each is an environment variable ``ISTHMUS_*``; ``isthmus env`` lists them.

The code that acts on an option reads the variable itself, some of it in C++ and some before any package may be
imported; this is where all of them are declared, typed and documented.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "ISTHMUS_"


def _option(default: Any, reader: str, meaning: str, **limits: Any) -> Any:
    return Field(default, description=meaning, json_schema_extra={"reader": reader}, **limits)


def _switch(value: Any) -> Any:
    if value in (True, False, "0", "1"):
        return value in (True, "1")
    raise ValueError("not a switch; set it to 0 or 1")


def _size(value: str) -> str:
    if re.fullmatch(r"(\d+(\.\d+)?([KMGT]iB|B)?)?", value):
        return value
    raise ValueError("not a size; set it to bytes or a number with KiB, MiB, GiB, for example 8GiB")


def _stream_check(value: str) -> str:
    if value in ("", "0", "1", "warn"):
        return value
    raise ValueError("not a mode of the check; set it to 0, 1 or warn")


_ALLOCATORS = ("planned", "torch", "bf", "bs", "raw", "lifetime")
_ALLOCATOR_OPTIONS = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
)


def _allocator(value: str) -> str:
    devices = set()
    for entry in value.split(",") if value else ():
        found = re.fullmatch(rf"(?:(?:chip:)?(\d+)=)?({'|'.join(_ALLOCATORS)})", entry)
        if not found:
            raise ValueError(
                f"{entry!r} is no allocator; set it to one of {', '.join(_ALLOCATORS)}, or to chip:0=torch,planned"
            )
        if found[1] in devices:
            raise ValueError(f"{entry!r} is the second entry of the same device; leave one")
        devices.add(found[1])
    return value


def _allocator_options(value: str) -> str:
    for entry in filter(None, re.sub(r"\[[^]]*\]", "[]", value).split(",")):
        key, colon, _ = (part.strip() for part in entry.partition(":"))
        if not colon or key not in _ALLOCATOR_OPTIONS:
            raise ValueError(f"{entry!r} is no option of an allocator; write {_ALLOCATOR_OPTIONS[0]}:512")
    return value


Size = Annotated[str, AfterValidator(_size)]
Switch = Annotated[bool, BeforeValidator(_switch)]


class Settings(BaseSettings):
    """The options with their current values, checked."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore")

    driver: str = _option(
        "",
        "import torch",
        "driver to open: a name, the path of a library, or none; empty: the first that is found",
    )
    strict: Switch = _option(False, "dispatch", "the fallback route (copy to CPU and back) raises instead")
    route: str = _option(
        "",
        "dispatch",
        "forced routes (kernel, delegate, decomposition, fallback): aten::mm=kernel,*softmax*=fallback, or @file",
    )
    trace: Switch = _option(False, "dispatch", "print each new choice of a route")
    libraries: str = _option(
        "", "import torch", "operator libraries to load ahead of the driver's own, separated as in PATH"
    )
    device: str = _option("", "isthmus run", "device that 'cuda' stands for: chip:1 or 1; empty: the first")
    patch: str = _option(
        "",
        "isthmus run",
        "libraries to put the operators of isthmus.ops under: transformers,torch; empty: none",
        pattern=r"^((transformers|torch)(,(transformers|torch))*)?$",
    )
    megatron: Switch = _option(False, "isthmus run", "adapt Megatron, as import isthmus.megatron does")
    quiet: Switch = _option(False, "isthmus run", "no start line and no end line")
    shim: Switch = _option(
        False, "every Python of a job", "set by isthmus run: enter the shim when torch is imported"
    )
    announced: Switch = _option(
        False, "every Python of a job", "set by isthmus run: a parent prints the lines"
    )
    verify: str = _option(
        "", "every Python of a job", "set by isthmus migrate verify: folder of what is to be recorded"
    )
    host_devices: int | None = _option(
        None, "host chip", "number of devices; empty: one, or one for each local rank", ge=0
    )
    host_memory: Size = _option("", "host chip", "memory of one device: 8GiB, 512MiB, or bytes; empty: 8GiB")
    host_strict: Switch = _option(
        False,
        "host chip",
        "device memory faults outside kernels, is poisoned when fresh; streams are delayed",
    )
    host_delegate: Switch = _option(True, "host chip", "0: pretend that the CPU cannot address the memory")
    host_rng: Literal["mt19937", "philox"] = _option(
        "mt19937",
        "import torch",
        "random numbers: mt19937 gives CPU's after the same seed, philox numbers of seed and offset only",
    )
    host_collective: Literal["", "mesh", "ring", "halving-doubling"] = _option(
        "", "host chip", "how all-reduce works: mesh, ring or halving-doubling; empty: by size and ranks"
    )
    allocator: Annotated[str, AfterValidator(_allocator)] = _option(
        "",
        "device memory",
        "caching allocator: planned, lifetime, torch, bf, bs, raw; chip:1=torch,bf for one device; empty: planned",
    )
    alloc_conf: Annotated[str, AfterValidator(_allocator_options)] = _option(
        "",
        "device memory",
        "the allocator's options, in the form of PYTORCH_ALLOC_CONF, which is read where this is empty",
    )
    leak_report: Switch = _option(
        False,
        "import torch",
        "print at exit what device memory is held, by the Python line that allocated it",
    )
    debug: str = _option(
        "",
        "isthmus.debug",
        "tools on from the start: compare:aten::*mm*,overflow:* (also capture, fallback, time)",
    )
    debug_folder: str = _option("", "isthmus.debug", "where the tools write; empty: isthmus-debug")
    stream_check: Annotated[str, AfterValidator(_stream_check)] = _option(
        "", "isthmus.debug", "1: unordered use of memory by two streams raises; warn: it warns"
    )
    debug_calls: str = _option("", "isthmus.debug", "set by isthmus bisect: folder for the operators called")
    kernels: Literal["", "AVX512", "AVX2", "DEFAULT"] = _option(
        "", "setup.py", "what the CPU kernels of isthmus.ops are compiled for; empty: what this machine has"
    )
    collectives: Literal["driver", "gloo"] = _option(
        "driver", "torch.distributed", "what carries collectives of chip tensors, where the driver has them"
    )
    blocking_wait: Switch = _option(
        False, "torch.distributed", "wait() of a collective lets the host wait, not only the current stream"
    )
    flight_recorder: int = _option(
        2000, "torch.distributed", "operations that the flight recorder keeps; 0: none", ge=0
    )
    flight_recorder_folder: str = _option(
        "", "torch.distributed", "where each rank writes its flight record when an operation fails or is late"
    )
    flight_recorder_stacks: Switch = _option(
        False, "torch.distributed", "the flight recorder also keeps the Python stack of each operation"
    )
    build_debug: Switch = _option(False, "setup.py", "build the C++ core with -O0 -g")


class Option(NamedTuple):
    """One option, for people.

    Attributes:
        variable: name of the environment variable.
        value: its current value, as text; the default where it is not set.
        default: as text.
        is_set: whether the environment sets it.
        reader: who reads it.
        meaning: one line.
        problem: what is wrong with the value, or "".
    """

    variable: str
    value: str
    default: str
    is_set: bool
    reader: str
    meaning: str
    problem: str


def options() -> list[Option]:
    """All options in the order of their declaration."""
    problems = _problems()
    return [_describe(name, field, problems) for name, field in Settings.model_fields.items()]


def unknown() -> list[str]:
    """Variables that begin with ISTHMUS_ and are no option: a misspelling, most likely."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _problems() -> dict[str, str]:
    try:
        Settings()
    except ValidationError as error:
        return {str(entry["loc"][0]): entry["msg"].removeprefix("Value error, ") for entry in error.errors()}
    return {}


def _describe(name: str, field: FieldInfo, problems: dict[str, str]) -> Option:
    variable = PREFIX + name.upper()
    extra: Any = field.json_schema_extra
    default = _text(field.default)
    return Option(
        variable=variable,
        value=os.environ.get(variable, default),
        default=default,
        is_set=variable in os.environ,
        reader=extra["reader"],
        meaning=field.description or "",
        problem=problems.get(name, ""),
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
