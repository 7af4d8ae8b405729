"""Compiles C with the system's compiler. A library is cached by its text: kernels that print the same C share one."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

from triton.runtime.cache import get_cache_manager

_HEADERS = Path(__file__).parent / "c"
# Loops that fill or copy short arrays are faster than the C library's functions.
_FLAGS = (
    "-O3 -std=gnu17 -march=native -mprefer-vector-width=512 -fno-math-errno -fno-trapping-math "
    "-fno-tree-loop-distribute-patterns -fopenmp -fPIC -w"
)


# The key covers the files as this process has imported them, because they may change later.
_FILES = sorted([*_HEADERS.glob("*.[ch]"), *Path(__file__).parent.rglob("*.py")])
_SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).digest()
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # by key of a library


@functools.cache
def compiler() -> list[str]:
    """The C compiler: the environment's ``CC``, or gcc.

    Raises:
        RuntimeError: there is none.
    """
    words = shlex.split(os.environ.get("CC", "gcc"))
    if not words or shutil.which(words[0]) is None:
        raise RuntimeError(
            f"Triton kernels need a C compiler, and there is no {words[0] if words else 'gcc'}: "
            "install gcc, or set CC to one"
        )
    return words


@functools.cache
def _version() -> str:
    """The compiler's version and configuration, as its option ``-v`` prints them."""
    return subprocess.run([*compiler(), "-v"], capture_output=True, check=True, text=True).stderr


@functools.cache
def _features() -> str:
    """The processor's features."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@functools.cache
def fingerprint() -> str:
    """A digest of everything but the text that a library depends on."""
    digest = hashlib.sha256(_FLAGS.encode() + _SOURCES)
    digest.update(f"{_version()}{_features()}".encode())
    return digest.hexdigest()


def _without_gathers() -> list[str]:
    """Options where the processor's masks are vectors (AVX2).

    There gcc 12 makes the mask of a gather whose condition it knows to be true from the number 1, which is no mask:
    nothing is loaded.
    """
    features = _features().split()
    if "gcc version" in _version() and "avx2" in features and "avx512f" not in features:
        return ["-mtune-ctrl=^use_gather_2parts,^use_gather_4parts,^use_gather"]
    return []


def library(text: str, fuses: bool, wraps: bool = False) -> bytes:
    """Compile a kernel's C.

    Args:
        text: of the kernel.
        fuses: a product and a sum may become one operation.
        wraps: signed integers may wrap around.

    Raises:
        RuntimeError: the compiler refuses, with its first words.
    """
    key = hashlib.sha256(f"{fingerprint()} {fuses} {wraps} {text}".encode()).hexdigest()
    cache = get_cache_manager(key)
    with _locks[key]:  # threads that compile configurations ahead may print the same C
        known = cache.get_file("kernel.so")
        if known is not None:
            return Path(known).read_bytes()
        options = [f"-ffp-contract={'fast' if fuses else 'off'}", *(["-fwrapv"] if wraps else [])]
        made = _compile(text, options)
        cache.put(made, "kernel.so")
        return made


def _compile(text: str, options: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(text)
        command = [
            *compiler(), *_FLAGS.split(), *_without_gathers(), *options, f"-I{_HEADERS}", "-shared", str(source),
            "-o", str(made), *_threads(), "-lm",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and re.search("internal compiler error|unrecognizable insn", done.stderr):
            # gcc 12 cannot encode a masked maximum of 64 bytes that its vectoriser makes
            command.append("-fno-tree-vectorize")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            kept = Path(tempfile.gettempdir(), f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.c")
            kept.write_text(text)
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
            raise RuntimeError(f"the C of a Triton kernel does not compile: {first} (the C is in {kept})")
        return made.read_bytes()


def load(binary: bytes, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a library from its bytes."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(binary)
        file.flush()
        return ctypes.CDLL(file.name, mode)


@functools.cache
def _threads() -> list[str]:
    """PyTorch's own OpenMP library where it has one, so that a process has one pool of threads."""
    import torch

    found = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    return [str(each) for each in found[:1]]
