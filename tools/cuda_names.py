"""Names of CUDA that libraries use, and what the shim answers: ``python -m tools.cuda_names``.

Downloads the newest wheel or source of each library, without what it needs, reads its source, and asks for each name
under the shim. Writes docs/results/cuda-names.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from isthmus import shim
from isthmus.shim import rules
from tools.repository import ROOT
from tools.suites import head, line

PAGE = ROOT / "docs/results/cuda-names.md"
LIBRARIES = (
    "transformers accelerate peft trl diffusers lightning torchtune deepspeed megatron-core bitsandbytes unsloth "
    "unsloth_zoo xformers torchao timm ultralytics torchvision torchaudio sentence-transformers pytorch-ignite monai "
    "mmengine ray mosaicml axolotl verl"
).split()
PREFIXES = ("torch.cuda.", "torch.backends.cuda.", "torch.backends.cudnn.", "torch._C._cuda")
TOLD = "is not available on"  # in the message of a refused name


def download(library: str, folder: Path) -> Path:
    """Return the file of a library's newest release.

    Raises:
        subprocess.CalledProcessError: there is none for this machine.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    for binary in ([], ["--only-binary", ":all:"]):
        done = subprocess.run(
            [*command, *binary, "--dest", folder, library], check=False, capture_output=True
        )
        if found := [path for path in folder.iterdir() if path.is_file()]:
            return found[0]
    raise subprocess.CalledProcessError(done.returncode, command)


def sources(file: Path) -> Iterator[str]:
    """Yield the text of the Python files of a wheel or source archive, but for tests."""
    if file.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(file) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py") and "/tests/" not in f"/{name}":
                    yield wheel.read(name).decode(errors="replace")
        return
    with tarfile.open(file) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py") and "/tests/" not in member.name:
                stream = archive.extractfile(member)
                assert stream is not None
                yield stream.read().decode(errors="replace")


def used_names(source: str) -> Iterator[str]:
    """Yield the names of CUDA in a source: ``torch.cuda.x``, and what ``from torch.cuda import x`` binds."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            parts: list[str] = []
            value: ast.expr = node
            while isinstance(value, ast.Attribute):
                parts.insert(0, value.attr)
                value = value.value
            if isinstance(value, ast.Name):
                yield from filter(_is_cudas, [".".join([value.id, *parts])])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from filter(_is_cudas, (f"{node.module}.{each.name}" for each in node.names))


def _is_cudas(name: str) -> bool:
    return name.startswith(PREFIXES)


def answer(name: str) -> tuple[str, str]:
    """Return whether a name is answered, refused or absent under the shim, and why."""
    found: Any = torch
    for part in name.split(".")[1:]:
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError, AssertionError) as error:
            own = isinstance(found, (ModuleType, type))
            return ("absent", str(error).partition("\n")[0]) if own else ("answered", "")
    last = name.rpartition(".")[2]
    refused = rules.CUDA_REFUSED.get(last)
    if refused and not hasattr(torch.chip, rules.CUDA_RENAMED.get(last, last)):
        return "refused", refused
    return "answered", ""


def page(used: dict[str, Counter[str]], missing: list[str], versions: dict[str, str]) -> str:
    """Return the page as Markdown."""
    names = sorted({name for counts in used.values() for name in counts})
    with shim.enter():
        answers = {name: answer(name) for name in names}
    answered = sum(state == "answered" for state, _ in answers.values())
    rows = [
        line(name, state, ", ".join(each for each in used if name in used[each]), why)
        for name, (state, why) in answers.items()
        if state != "answered"
    ]
    parts = [
        "# CUDA's names that libraries use",
        "Made by `python -m tools.cuda_names`: attributes below `torch.cuda`, `torch.backends.cuda`, "
        "`torch.backends.cudnn` and `torch._C._cuda*` in the source of the newest releases, each asked for under the "
        f"shim. {answered} of {len(names)} names are answered ({answered / len(names):.1%}).",
        "\n".join(
            [
                *head("library", "version", "names used", "answered"),
                *(
                    line(
                        library,
                        versions[library],
                        len(counts),
                        sum(answers[name][0] == "answered" for name in counts),
                    )
                    for library, counts in used.items()
                ),
            ]
        ),
        *([f"Without a release for this machine: {', '.join(missing)}."] if missing else []),
        "## Not answered",
        "\n".join([*head("name", "state", "used by", "why"), *rows]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    used: dict[str, Counter[str]] = {}
    versions: dict[str, str] = {}
    missing = []
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                file = download(library, Path(folder))
            except subprocess.CalledProcessError:
                missing.append(library)
                continue
            used[library] = Counter(name for source in sources(file) for name in used_names(source))
            versions[library] = file.name.split("-")[1].removesuffix(".tar.gz")
            print(f"{library} {versions[library]}: {len(used[library])} names", flush=True)
    PAGE.write_text(page(used, missing, versions))
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
