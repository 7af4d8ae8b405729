"""The options of the device, its drivers and ``isthmus run``.

Python reads an option by :func:`switch`, :func:`integer` or :func:`text`. The build writes names, defaults and limits
for C++ (``isthmus_options.h``). :mod:`isthmus.config` checks and lists the options of all packages
(``isthmus env``); ``import torch`` does so by :func:`check`, if it registers the chip. This module imports nothing
heavy: it is read inside every ``import torch``.
"""

import re
from collections.abc import Mapping

from isthmus_common.options import PREFIX, InvalidOption, Option, Table, numbers, parse

__all__ = [
    "ALLOCATORS", "OPTIONS", "PATCHABLE", "PREFIX", "TABLE", "InvalidOption", "Option", "check", "integer", "numbers",
    "parse", "switch", "text", "variable",
]  # fmt: skip

# isthmus.ops.patching.LIBRARIES, which `isthmus run` does not import PyTorch for.
PATCHABLE = ("transformers", "torch")
ALLOCATORS = ("planned", "torch", "bf", "bs", "raw", "lifetime")
_ALLOCATOR_OPTIONS = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
)


def _check_patch(value: str) -> None:
    for library in value.split(","):
        if library.strip() not in PATCHABLE:
            raise ValueError(f"not supported by isthmus.ops; expected {', '.join(PATCHABLE)}")


def _without_chip(given: Mapping[str, str]) -> dict[str, str]:
    """Variables that let the CPU stand for CUDA: a registered chip would still be the accelerator."""
    return {"ISTHMUS_DRIVER": "none"} if given["device"] == "cpu" and "driver" not in given else {}


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
           "driver to open: a name, the path of a library, or none; empty: the first that is found", flag="D"),
    Option("strict", "switch", False, "dispatch", "the fallback route (copy to CPU and back) raises instead"),
    Option("route", "text", "", "dispatch",
           "forced routes (kernel, delegate, decomposition, fallback): "
           "aten::mm=kernel,*softmax*=fallback, or @file"),
    Option("batch_invariant", "switch", False, "dispatch",
           "rows of products, reductions and activations have the same bits in every batch, on chips that can"),
    Option("trace", "switch", False, "dispatch", "print each new choice of a route"),
    Option("libraries", "text", "", "import torch",
           "operator libraries to load ahead of the driver's own, separated as in PATH"),
    Option("device", "text", "", "isthmus run",
           "device that 'cuda' stands for: 1, chip:1 or cpu; empty: the first", flag="D", prepare=_without_chip),
    Option("compile_fuse", "switch", True, "torch.compile",
           "fuse operators in graphs of a chip without a compiler; 0: results are bit-equal to eager ones"),
    Option("compile_capture", "switch", True, "torch.compile",
           "run graphs of a chip without a compiler as captured kernels, not by the dispatcher"),
    Option("compile_codegen", "choice", "c++", "torch.compile",
           "language of the kernels on a chip whose memory the CPU addresses: c++, or triton (needs isthmus-triton)",
           choices=("c++", "triton")),
    Option("patch", "text", "", "isthmus run",
           "libraries to put the fused operators of isthmus.ops under: transformers,torch; empty: none",
           check=_check_patch, flag="L"),
    Option("megatron", "switch", False, "isthmus run", "adapt Megatron, as import isthmus.megatron does",
           start="isthmus.megatron", moment="job", flag=""),
    Option("quiet", "switch", False, "isthmus run", "no start line and no end line", flag=""),
    Option("shim", "switch", False, "every Python of a job",
           "set by isthmus run: enter the shim when torch is imported"),
    Option("announced", "switch", False, "every Python of a job",
           "set by isthmus run: a parent prints the lines"),
    Option("counts", "text", "", "every Python of a job",
           "set by isthmus run: file to which child processes write what they did on the device"),
    Option("host_devices", "integer", None, "host chip",
           "number of devices; empty: one, or one for each local rank", least=0, most=64),
    Option("host_memory", "size", "8GiB", "host chip",
           "memory of one device: 8GiB, 512MiB, or bytes; at most the machine's", least=2 << 20, most=64 << 40),
    Option("host_strict", "switch", False, "host chip",
           "device memory faults outside kernels and is poisoned when fresh; streams are delayed"),
    Option("host_async", "switch", False, "host chip",
           "kernels, copies and fills run later, on a thread of their stream, as on a real chip; implies "
           "ISTHMUS_HOST_STRICT"),
    Option("host_delegate", "switch", True, "host chip", "0: pretend that the CPU cannot address the memory"),
    Option("host_accumulate", "choice", "float32", "host chip",
           "dtype in which many-to-one sums of 16-bit numbers are added: float32, as on CUDA; cpu: as on the CPU",
           choices=("float32", "cpu")),
    Option("host_rng", "choice", "mt19937", "import torch",
           "random numbers: mt19937 gives CPU's after the same seed, philox numbers of seed and offset only",
           choices=("mt19937", "philox")),
    Option("host_collective", "choice", "", "host chip",
           "algorithm of all-reduce: mesh, ring or halving-doubling; empty: by size and ranks",
           choices=("", "mesh", "ring", "halving-doubling")),
    Option("visible_devices", "text", "", "import torch",
           "numbers of the driver's devices that the process sees, in this order; empty: all; -1: none"),
    Option("allocator", "text", "planned", "device memory",
           "caching allocator: planned, lifetime, torch, bf, bs, raw; chip:1=torch,bf for one device",
           check=_check_allocator),
    Option("alloc_conf", "text", "", "device memory",
           "the allocator's options, in the form of PYTORCH_ALLOC_CONF, which is read if this is empty",
           check=_check_allocator_options),
    Option("leak_report", "switch", False, "import torch",
           "print at exit the device memory still held, by the Python line that allocated it"),
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
    Option("torch", "text", "", "setup.py",
           "folders of every PyTorch to build the core for, separated by colons; empty: the installed one"),
)
# fmt: on
TABLE = Table(OPTIONS, "The accelerator")
switch, integer, text = TABLE.switch, TABLE.integer, TABLE.text
check, variable = TABLE.check, TABLE.variable
