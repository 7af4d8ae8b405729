"""Mutants of the compiled kernels (``csrc/kernels``): changes of text, all in one library, one active at a time.

Each rule finds a pattern in a line and puts ``mutated(n)`` into it, which is 1 while mutant n is active and 0
otherwise. Lines that the compiler rejects, such as constant expressions, lose their mutants.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST, STRIDED, Context, Entry, Unsupported
from isthmus_common.files import make_folder, write_file
from tools.mutation.kernel import mapped
from tools.mutation.source import Site
from tools.repository import CORE, ROOT

BUILD = ROOT / "build" / "mutants"
_OPERATOR = re.compile(r'm\.def\(\s*"(\w+)')
_SKIPPED = re.compile(r"^\s*(#|//|template|using|m\.def|static_assert|TORCH_)|constexpr")
_UNUSED = "attention_tiles.h"  # needs AVX512, for which the mutated kernels are not compiled
# Values that hold no result.
_NO_RESULT = re.compile(
    r"[^\n]*prefetch\([^\n]*;"
    r"|rows_per_task\((?:[^()]|\([^()]*\))*\)|grain = [^;]*;|(?<=, )\w+(?=, \[&\]\(int64_t begin)"  # sizes of tasks
    r"|\+ k\w+ - 1(?=\) / k)"  # a number of blocks rounded up: one more is empty
    r"|; [^;\n]+ <= \w+(?=; \w+ \+= )"  # the last whole vector of a loop: the code of the tail computes it as well
    r"|\S+ >= kStreamedBytes"  # stores past the caches
    r"|for \([^{}\n]*\)(?=\n *TORCH_CHECK)"  # checks of invalid input
)
_ROUNDS = 12  # rounds of dropping rejected lines
_NEAR = 20  # lines before a rejected one that may be the reason
# Mutation, class, pattern, replacement; {m} is the call of mutated().
RULES: tuple[tuple[str, str, str, str], ...] = (
    ("C++ sum restarted", "accumulation", r"^(\s*)([\w\[\].]+) \+= (.+);$", r"\1if ({m}) \2 = \3; else \2 += \3;"),
    ("C++ store dropped", "memory", r"^(\s*)(\w+\[[^\]]+\] = .+;)$", r"\1if (!{m}) \2"),
    ("C++ loop ends early", "tail", r"(?<=; )(\w+) < ([^;]+)(?=;)", r"\1 < \2 - {m}"),
    ("C++ loop starts late", "indexing", r"(for \((?:const )?\w+ \w+ = )([^;]+);", r"\1\2 + {m};"),
    ("C++ pitch", "indexing", r"\b(row|task|token|head|batch|group|block|i|j|b|h) \* (\w+)(?![\w.(\[:<-])",
     r"\1 * (\2 + {m})"),
    ("C++ offset dropped", "indexing", r" \+ (row|i|j|begin|start|offset)\b(?![.(\[:-])", r" + \1 * !{m}"),
    ("C++ optional ignored", "arguments ignored", r" != nullptr", r" != nullptr & !{m}"),
    ("C++ optional ignored", "arguments ignored", r" == nullptr", r" == nullptr | {m}"),
    ("C++ optional ignored", "arguments ignored", r"\.has_value\(\)(?! [=!]=)", r".has_value() & !{m}"),
    ("C++ number ignored", "arguments ignored", r" \* (scale|slope|p|beta1|beta2|lr|weight_decay|logit_scale)\b",
     r" * ({m} ? 1 : \1)"),
    ("C++ eps ignored", "arguments ignored", r"\b(eps)\)", r"\1 * !{m})"),
    ("C++ copy not contiguous", "layout assumed", r"(\w+)\.contiguous\(\)", r"({m} ? \1 : \1.contiguous())"),
    ("C++ copy not contiguous", "layout assumed", r"(\w+)->contiguous\(\)", r"({m} ? *\1 : \1->contiguous())"),
    ("C++ stride ignored", "layout assumed", r"(\w+)\.stride\(([^()]+)\)", r"({m} ? 1 : \1.stride(\2))"),
    ("C++ infinity is finite", "special values", r"(-?std::numeric_limits<[\w:<>]+>::infinity\(\))",
     r"({m} ? 0 : \1)"),
    ("C++ NaN not found", "special values", r"(std::isnan\([^()]+\))", r"(\1 && !{m})"),
    ("C++ sum restarted", "accumulation", r"at::vec::fmadd\((\w[\w.]*), (\w[\w.]*), (\w[\w.]*)\)",
     r"({m} ? \1 * \2 : at::vec::fmadd(\1, \2, \3))"),
    ("C++ block off by one", "tiling", r"\b(k(?:\w*)(?:Block|Tile|Rows|Chunk|Step|Lanes|Keys|Queries|Columns)\w*)\b",
     r"(\1 + {m})"),
    ("C++ index cut", "saturation", r"(int64_t \w+ = )(\w+\[[^\]]+\]);", r"\1({m} ? int64_t(int16_t(\2)) : \2);"),
    ("C++ integer cut", "saturation", r"static_cast<int64_t>\(([^()]+)\)",
     r"({m} ? int64_t(int8_t(\1)) : static_cast<int64_t>(\1))"),
    ("C++ sign changed", "formula", r"(?<=[\w)\]]) - (?=[\w(])", r" - (1 - 2 * {m}) * "),
    ("C++ term dropped", "formula", r" \* ([a-z]\w*)(?![\w.(\[:<-])", r" * ({m} ? 1 : \1)"),
    ("C++ comparison moved", "tail", r" <= ", r" + {m} <= "),
    ("C++ comparison moved", "tail", r" >= ", r" - {m} >= "),
)  # fmt: skip
_HEADER = """#pragma once
#include <cstdint>
extern "C" {
extern volatile int64_t isthmus_active_mutant;
extern uint8_t isthmus_reached_mutants[];
}
inline int64_t mutated(int64_t number) {
  isthmus_reached_mutants[number] = 1;
  return isthmus_active_mutant == number;
}
"""


_FLAGS = ("-std=c++20", "-O1", "-fopenmp", "-fPIC", "-DCPU_CAPABILITY=DEFAULT", "-DCPU_CAPABILITY_DEFAULT")


class Compiled:
    """The compiled kernels with their mutants.

    Attributes:
        sites: all mutants that compile; none before :meth:`build`.
        operators: names of the operators that the kernels implement.
    """

    def __init__(self, folder: Path = CORE / "csrc") -> None:
        self._folder = folder
        self._texts = {file.name: file.read_text() for file in sorted((folder / "kernels").iterdir())}
        found = [name for text in self._texts.values() for name in _OPERATOR.findall(text)]
        self.operators = [f"isthmus::{name}" for name in found]
        self.sites: list[Site] = []
        all_sites = [site for name, text in self._texts.items() for site in sites_of(name, text)]
        self._all = [site._replace(number=number) for number, site in enumerate(all_sites)]
        kept = repr((RULES, _NO_RESULT, _HEADER, _FLAGS, self._texts))
        self._build = BUILD / hashlib.sha256(kept.encode()).hexdigest()[:16]
        self._library: Any = None

    def build(self) -> None:
        """Compile the kernels with all mutants, unless they are built: minutes.

        Raises:
            RuntimeError: they do not compile.
        """
        rejected = self._build / "rejected.json"
        if not rejected.is_file():
            self._compile(rejected)
        dropped = set(json.loads(rejected.read_text()))
        self.sites = [
            site for site in self._all if site.place not in dropped and not site.place.startswith(_UNUSED)
        ]

    def set_active(self, number: int) -> None:
        """Activate a mutant; -1 is none."""
        ctypes.c_int64.in_dll(self._load(), "isthmus_active_mutant").value = number

    def reached(self) -> set[int]:
        """Return the mutants executed since the last call."""
        flags = (ctypes.c_uint8 * len(self._all)).in_dll(self._load(), "isthmus_reached_mutants")
        found = set(np.flatnonzero(np.frombuffer(bytes(flags), np.uint8)).tolist())
        ctypes.memset(flags, 0, len(flags))
        return found

    def entry(self, name: str) -> Entry:
        """Return the kernel of an operator. Calling it needs PyTorch."""
        return Entry(name, dt.mask(dt.ALL), HOST | STRIDED, self._kernel(name), False)

    def _kernel(self, name: str) -> Callable[..., None]:
        count = len(opset.schema_of(name).inputs)

        def kernel(*arguments: Any, context: Context) -> None:
            import torch

            self._load()
            function = getattr(torch.ops.isthmus_cpu, name.partition("::")[2])
            if name == "isthmus::grad_norm" and arguments[1] not in (1, 2, math.inf):
                raise Unsupported  # isthmus.ops.optimizer raises it, and does not call the kernel
            try:
                results = function(*mapped(partial(_tensor, torch), list(arguments[:count])))
            except NotImplementedError:
                raise Unsupported from None
            outputs = arguments[count:]
            for out, result in zip(
                outputs, results if isinstance(results, tuple) else [results], strict=False
            ):
                if out is not None:
                    out[...] = _array(torch, result)

        return kernel

    def _load(self) -> Any:
        if self._library is None:
            import torch

            torch.set_num_threads(2)
            torch.use_deterministic_algorithms(
                True, warn_only=True
            )  # fills fresh memory: no results of earlier calls
            torch.ops.load_library(str(self._build / "kernels.so"))
            self._library = ctypes.CDLL(str(self._build / "kernels.so"))
        return self._library

    def _compile(self, rejected: Path) -> None:
        """Compile each source until g++ accepts it, and link."""
        folder = self._build / "kernels"
        make_folder(folder)
        write_file(self._build / "mutated.h", [_HEADER.encode()])
        active = (
            f"volatile int64_t isthmus_active_mutant = -1; uint8_t isthmus_reached_mutants[{len(self._all)}];"
        )
        text = f'#include <cstdint>\nextern "C" {{ {active} }}\n'
        write_file(folder / "mutants.cpp", [text.encode()])
        dropped: set[str] = set()
        sources = ["mutants.cpp", *(name for name in self._texts if name.endswith(".cpp"))]
        for _ in range(_ROUNDS):
            for name, each in self._texts.items():
                mutated = weave_mutants(name, each, [site for site in self._all if site.place not in dropped])
                if not (folder / name).is_file() or (folder / name).read_text() != mutated:
                    write_file(folder / name, [mutated.encode()])
            with ThreadPoolExecutor(2) as pool:
                errors = set().union(*pool.map(self._rejected, sources))
            if not errors:
                break
            places = {site.place for site in self._all} - dropped
            dropped |= errors & places or {
                place for place in places for error in errors if _near(place, error)
            }
        else:
            raise RuntimeError(f"the mutated kernels do not compile: {sorted(errors)[0]}")
        objects = [str(folder / f"{name}.o") for name in sources]
        linked = [f"-L{_torch() / 'lib'}", "-lc10", "-ltorch", "-ltorch_cpu"]
        subprocess.run(
            ["g++", "-shared", "-o", str(self._build / "kernels.so"), *objects, *linked], check=True
        )
        write_file(rejected, [json.dumps(sorted(dropped)).encode()])

    def _rejected(self, name: str) -> set[str]:
        """Compile one source; return the places that g++ rejects."""
        source, beside = self._build / "kernels" / name, self._build / "kernels" / f"{name}.o"
        if beside.is_file() and beside.stat().st_mtime > max(
            each.stat().st_mtime for each in (source, *source.parent.glob("*.h"))
        ):
            return set()
        paths = [_torch() / "include", _torch() / "include/torch/csrc/api/include"]
        system = [flag for path in paths for flag in ("-isystem", str(path))]
        own = ["-include", str(self._build / "mutated.h"), f"-I{self._build}", f"-I{self._folder}"]
        command = ["g++", *_FLAGS, *system, *own, "-w", "-c", str(source), "-o", str(beside)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            return set()
        found = re.findall(r"kernels/([\w.]+:\d+):\d+:", done.stderr)
        if not found:
            raise RuntimeError(f"the mutated kernels do not compile: {done.stderr[:400]}")
        return set(found)


def _torch() -> Path:
    """Return the folder of PyTorch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise RuntimeError("the compiled kernels need PyTorch; run `pip install torch`")
    return Path(spec.origin).parent


def _near(place: str, error: str) -> bool:
    """Whether a place is in the lines before one that g++ rejects."""
    (file, line), (other, rejected) = place.split(":"), error.split(":")
    return file == other and 0 <= int(rejected) - int(line) < _NEAR


def _lines(text: str) -> list[str]:
    """Return the lines of a file with blanks in place of what holds no result."""
    return _NO_RESULT.sub(lambda match: " " * len(match[0]), text).splitlines()


def _matches(line: str) -> list[tuple[int, re.Match[str]]]:
    """Return the rules that match a line, with their places; where they overlap, the first rule wins."""
    taken: list[tuple[int, re.Match[str]]] = []
    if _SKIPPED.search(line):
        return taken
    code = line.partition("//")[0]
    for rule, (_, _, pattern, _) in enumerate(RULES):
        for match in re.finditer(pattern, code):
            if all(match.end() <= other.start() or match.start() >= other.end() for _, other in taken):
                taken.append((rule, match))
    return sorted(taken, key=lambda row: row[1].start())


def sites_of(name: str, text: str) -> Iterator[Site]:
    """Yield the mutants of a file, without numbers."""
    for number, (line, code) in enumerate(zip(text.splitlines(), _lines(text), strict=True), 1):
        for rule, match in _matches(code):
            mutation, kind, _, replacement = RULES[rule]
            after = match.expand(replacement).replace("{m}", "1").strip()
            yield Site(-1, mutation, kind, f"{name}:{number}", line.strip(), match.group().strip(), after)


def weave_mutants(name: str, text: str, sites: list[Site]) -> str:
    """Return the text of a file with its mutants."""
    numbers: dict[str, list[int]] = {}
    for site in sites:
        numbers.setdefault(site.place, []).append(site.number)
    lines = text.splitlines()
    for number, code in enumerate(_lines(text)):
        own = numbers.get(f"{name}:{number + 1}")
        if own:
            for (rule, match), site_number in reversed(list(zip(_matches(code), own, strict=True))):
                changed = match.expand(RULES[rule][3]).replace("{m}", f"mutated({site_number})")
                line = lines[number]
                lines[number] = line[: match.start()] + changed + line[match.end() :]
    return "\n".join(lines) + "\n"


def _tensor(torch: Any, value: Any) -> Any:
    """Return the tensor over the memory of an array; other values unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    if dt.name_of(value.dtype) == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def _array(torch: Any, tensor: Any) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(dt.DTYPES["bfloat16"].numpy)
    return tensor.numpy()
