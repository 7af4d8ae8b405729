"""The table of options: each is an environment variable ``ISTHMUS_*``, typed and documented here alone.

Python reads an option by :func:`switch`, :func:`integer` or :func:`text`. ``make docs`` writes
names, defaults and limits for C++ to ``csrc/options/table.h``. :mod:`isthmus.config` checks and lists all of them
(``isthmus env``); ``import torch`` does so by :func:`check`, if it registers the chip. This module imports nothing
heavy: it is read inside every ``import torch``.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

PREFIX = "ISTHMUS_"

Kind = Literal["switch", "integer", "size", "text", "choice"]

ALLOCATORS = ("planned", "torch", "bf", "bs", "raw", "lifetime")
_ALLOCATOR_OPTIONS = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
)
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class InvalidOption(SystemExit):
    """An option has an invalid value. Ends the process; the message is one line."""


class Option(NamedTuple):
    """One option.

    Attributes:
        name: ``host_memory`` for the variable ``ISTHMUS_HOST_MEMORY``.
        kind: type of the value.
        default: value of a variable that is unset or empty; None: the reader decides.
        reader: who reads it.
        meaning: one line.
        choices: values of a choice.
        least: smallest integer or size in bytes.
        most: largest integer or size in bytes.
        check: of a text: raises ValueError for a wrong value.
    """

    name: str
    kind: Kind
    default: bool | int | str | None
    reader: str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    check: Callable[[str], None] | None = None

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return PREFIX + self.name.upper()


def _check_patch(value: str) -> None:
    if not re.fullmatch(r"(transformers|torch)(,(transformers|torch))*", value):
        raise ValueError("not a list of libraries; set it to transformers, torch or transformers,torch")


def _check_numbers(value: str) -> None:
    numbers(value)


def numbers(value: str) -> frozenset[int] | None:
    """Return the numbers of a list such as ``0,2,5-7``; None for "".

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in filter(None, value.split(",")):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{part!r} is no number and no range; write 0,2,5-7")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found) if value else None


def _check_allocator(value: str) -> None:
    devices = set()
    for entry in value.split(","):
        found = re.fullmatch(rf"(?:(?:chip:)?(\d+)=)?({'|'.join(ALLOCATORS)})", entry)
        if not found:
            expected = f"{', '.join(ALLOCATORS)}, or chip:0=torch,planned"
            raise ValueError(f"unknown allocator {entry!r}; expected {expected}")
        if found[1] in devices:
            raise ValueError(f"{entry!r} is the second entry for the same device; remove one")
        devices.add(found[1])


def _check_allocator_options(value: str) -> None:
    for entry in filter(None, re.sub(r"\[[^]]*\]", "[]", value).split(",")):
        key, colon, _ = (part.strip() for part in entry.partition(":"))
        if not colon or key not in _ALLOCATOR_OPTIONS:
            raise ValueError(f"unknown allocator option {entry!r}; write {_ALLOCATOR_OPTIONS[0]}:512")


# fmt: off
OPTIONS = (
    Option("driver", "text", "", "import torch",
           "driver to open: a name, the path of a library, or none; empty: the first that is found"),
    Option("strict", "switch", False, "dispatch", "the fallback route (copy to CPU and back) raises instead"),
    Option("route", "text", "", "dispatch",
           "forced routes (kernel, delegate, decomposition, fallback): "
           "aten::mm=kernel,*softmax*=fallback, or @file"),
    Option("trace", "switch", False, "dispatch", "print each new choice of a route"),
    Option("libraries", "text", "", "import torch",
           "operator libraries to load ahead of the driver's own, separated as in PATH"),
    Option("device", "text", "", "isthmus run",
           "device that 'cuda' stands for: chip:1 or 1; empty: the first"),
    Option("compile_fuse", "switch", True, "torch.compile",
           "fuse operators in graphs of a chip without a compiler; 0: results are bit-equal to eager ones"),
    Option("compile_capture", "switch", True, "torch.compile",
           "run graphs of a chip without a compiler as captured kernels, not by the dispatcher"),
    Option("patch", "text", "", "isthmus run",
           "libraries to put the operators of isthmus.ops under: transformers,torch; empty: none",
           check=_check_patch),
    Option("megatron", "switch", False, "isthmus run", "adapt Megatron, as import isthmus.megatron does"),
    Option("plan", "text", "", "isthmus run", "plan of `isthmus plan` to apply to the model"),
    Option("swap", "switch", False, "isthmus run",
           "keep activations of layers on the host as far as the device has no room for them"),
    Option("quiet", "switch", False, "isthmus run", "no start line and no end line"),
    Option("shim", "switch", False, "every Python of a job",
           "set by isthmus run: enter the shim when torch is imported"),
    Option("announced", "switch", False, "every Python of a job",
           "set by isthmus run: a parent prints the lines"),
    Option("counts", "text", "", "every Python of a job",
           "set by isthmus run: file to which child processes write what they did on the device"),
    Option("verify", "text", "", "every Python of a job",
           "set by isthmus migrate verify: folder of the records"),
    Option("plan_run", "text", "", "every Python of a job",
           "set by isthmus plan: folder for what it measures"),
    Option("host_devices", "integer", None, "host chip",
           "number of devices; empty: one, or one for each local rank", least=0, most=64),
    Option("host_memory", "size", "8GiB", "host chip",
           "memory of one device: 8GiB, 512MiB, or bytes", least=2 << 20, most=64 << 40),
    Option("host_strict", "switch", False, "host chip",
           "device memory faults outside kernels and is poisoned when fresh; streams are delayed"),
    Option("host_delegate", "switch", True, "host chip", "0: pretend that the CPU cannot address the memory"),
    Option("host_rng", "choice", "mt19937", "import torch",
           "random numbers: mt19937 gives CPU's after the same seed, philox numbers of seed and offset only",
           choices=("mt19937", "philox")),
    Option("host_collective", "choice", "", "host chip",
           "algorithm of all-reduce: mesh, ring or halving-doubling; empty: by size and ranks",
           choices=("", "mesh", "ring", "halving-doubling")),
    Option("ascend_devices", "integer", None, "isthmus ascend",
           "number of NPUs; empty: as ISTHMUS_HOST_DEVICES", least=0, most=64),
    Option("ascend_memory", "size", "64GiB", "isthmus ascend",
           "memory of one NPU: 64GiB, 512MiB, or bytes; used as it is needed", least=2 << 20, most=64 << 40),
    Option("ascend_soc", "text", "Ascend910B2", "isthmus ascend", "product that the NPUs claim to be"),
    Option("ascend_fault", "text", "", "isthmus ascend",
           "failure to inject, as `isthmus ascend fault` sets it: lost, ecc, memory, core, oom, hang or link, then "
           ":call and :function"),
    Option("allocator", "text", "planned", "device memory",
           "caching allocator: planned, lifetime, torch, bf, bs, raw; chip:1=torch,bf for one device",
           check=_check_allocator),
    Option("alloc_conf", "text", "", "device memory",
           "the allocator's options, in the form of PYTORCH_ALLOC_CONF, which is read if this is empty",
           check=_check_allocator_options),
    Option("leak_report", "switch", False, "import torch",
           "print at exit the device memory still held, by the Python line that allocated it"),
    Option("debug", "text", "", "isthmus.debug",
           "tools on from the start: compare:aten::*mm*,overflow:* (also capture, fallback, time)"),
    Option("debug_folder", "text", "isthmus-debug", "isthmus.debug", "where the tools write"),
    Option("dump", "choice", "", "isthmus run",
           "what isthmus.accuracy records of every call: statistics, hashes, tensors; empty: nothing",
           choices=("", "statistics", "hashes", "tensors")),
    Option("dump_dir", "text", "isthmus-dump", "isthmus run", "folder of the dump"),
    Option("dump_level", "choice", "both", "isthmus run",
           "calls to record: module, operator, both; all: also the operators of the optimizer's step",
           choices=("module", "operator", "both", "all")),
    Option("dump_steps", "text", "", "isthmus run", "steps to record: 0,1,5-7; empty: all", check=_check_numbers),
    Option("dump_ranks", "text", "", "isthmus run", "ranks that record: 0,1,5-7; empty: all", check=_check_numbers),
    Option("dump_scope", "text", "*", "isthmus run",
           "names of the modules or operators to record: *.layers.0.*, aten::mm"),
    Option("monitor", "text", "", "isthmus run",
           "folder for statistics of gradients, weights and optimizer states during the run; empty: none"),
    Option("health", "switch", False, "isthmus run", "watch the health of the job, with isthmus.health"),
    Option("health_dir", "text", "isthmus-health", "isthmus run",
           "folder of the health reports, which all ranks share"),
    Option("health_claim", "text", "", "isthmus run",
           "set by a process that is watched: its id and ranks, by which those that it starts are not"),
    Option("health_timeout", "integer", 60, "isthmus run",
           "seconds in a collective until the hang report", least=1),
    Option("stream_check", "choice", "0", "isthmus.debug",
           "1: unordered use of memory by two streams raises; warn: it warns", choices=("0", "1", "warn")),
    Option("debug_calls", "text", "", "isthmus.debug",
           "set by isthmus bisect: folder for the operators called"),
    Option("kernels", "choice", "", "setup.py",
           "instruction set of the CPU kernels of isthmus.ops; empty: this machine's",
           choices=("", "AVX512", "AVX2", "DEFAULT")),
    Option("collectives", "choice", "driver", "torch.distributed",
           "transport of collectives of chip tensors; driver: gloo where the driver has none",
           choices=("driver", "gloo")),
    Option("blocking_wait", "switch", False, "torch.distributed",
           "wait() of a collective blocks the host, not only the current stream"),
    Option("flight_recorder", "integer", 2000, "torch.distributed",
           "operations that the flight recorder keeps; 0: none", least=0),
    Option("flight_recorder_folder", "text", "", "torch.distributed",
           "where each rank writes its flight record when an operation fails or is late"),
    Option("failure_file", "text", "", "torch.distributed",
           "set by isthmus run: file for the record of the first collective that fails"),
    Option("flight_recorder_stacks", "switch", False, "torch.distributed",
           "the flight recorder also keeps the Python stack of each operation"),
    Option("build_debug", "switch", False, "setup.py", "build the C++ core with -O0 -g"),
)
# fmt: on
_BY_NAME = {option.name: option for option in OPTIONS}


def parse(option: Option, value: str) -> bool | int | str | None:
    """The value of a variable, typed; the default if it is empty.

    A size stays text, as ``8GiB``.

    Raises:
        ValueError: the value is wrong; what it is not and what to set, without the variable's name.
    """
    if value == "":
        return option.default
    if option.kind == "switch":
        if value not in ("0", "1"):
            raise ValueError("not a switch; set it to 0 or 1")
        return value == "1"
    if option.kind == "integer":
        if not value.isascii() or not value.isdecimal() or not _is_within(option, int(value)):
            raise ValueError(f"not a whole number {_limits(option)}")
        return int(value)
    if option.kind == "size":
        count = parse_size(value)
        if count is None or not _is_within(option, count):
            raise ValueError(
                "not a size; set it to bytes or a number with KiB, MiB, GiB or TiB, "
                f"{_limits(option)}, for example 8GiB"
            )
    elif option.kind == "choice":
        if value not in option.choices:
            raise ValueError(f"unknown value; expected {_either(option.choices)}")
    elif option.check is not None:
        option.check(value)
    return value


def switch(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """The value of a switch.

    Raises:
        ValueError: one line with the variable, its value and what to set.
    """
    return bool(_value(name, environment))


def integer(name: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """The value of an integer option; None if it is unset and has no default.

    Raises:
        ValueError: one line with the variable, its value and what to set.
    """
    value = _value(name, environment)
    return None if value is None else int(value)


def text(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The value of a text, a size or a choice.

    Raises:
        ValueError: one line with the variable, its value and what to set.
    """
    return str(_value(name, environment))


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Check all options.

    Raises:
        ValueError: one line with the first variable that is wrong, its value and what to set.
    """
    for option in OPTIONS:
        _value(option.name, environment)


def variable(name: str) -> str:
    """Name of the environment variable of an option."""
    return _BY_NAME[name].variable


def _value(name: str, environment: Mapping[str, str]) -> bool | int | str | None:
    option = _BY_NAME[name]
    value = environment.get(option.variable, "")
    try:
        return parse(option, value)
    except ValueError as error:
        raise ValueError(f"{option.variable}={value}: {error}") from None


def parse_size(value: str) -> int | None:
    """Bytes of a size such as ``1.5GiB``; None for other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]iB|B)?", value, re.ASCII)
    return int(float(found[1]) * _UNITS[found[2] or ""]) if found else None


def _is_within(option: Option, value: float) -> bool:
    return (option.least is None or value >= option.least) and (option.most is None or value <= option.most)


def _limits(option: Option) -> str:
    show = _size_text if option.kind == "size" else str
    if option.most is None:
        return f"of at least {show(option.least or 0)}"
    return f"from {show(option.least or 0)} to {show(option.most)}"


def _size_text(count: int) -> str:
    unit, scale = next(item for item in reversed(_UNITS.items()) if count >= item[1])
    return f"{count // scale}{unit}"


def _either(choices: tuple[str, ...]) -> str:
    *first, last = filter(None, choices)
    return f"{', '.join(first)} or {last}"
