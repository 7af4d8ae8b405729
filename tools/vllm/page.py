"""Generate docs/results/serving.md: tests of serving on the chip, and vLLM's own tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping

from tools.ascend.vendor.page import choose_rows, tables
from tools.suites import Row, counts, head, line

# Reason -> pattern of a failure or a skip, "test: message". None of them is a fault of the plugin.
REASONS = {
    "asks for a CUDA or XPU device by name": r"(CUDA|XPU|ROCm|NVIDIA|GPU|SM\d\d)[^:]*"
    r"(required|only|not available|not found)"
    r"|Requires CUDA|Torch not compiled with CUDA|needs native fp8e4nv|[Ff]lash[Aa]ttn|FlashAttention|FlashInfer",
    "asks for a model of a hub, with its weights": r"Invalid repository ID|is not a valid model identifier"
    r"|offline mode|Cannot find|couldn't connect|LocalEntryNotFound|does not appear to have",
    "asks for vLLM's compiled operators": r"_OpNamespace '_C|reshape_and_cache_flash' is not defined|_custom_ops"
    r"|vllm\._C",
}


def page(version: str, own: list[ET.Element], rows: list[Row], least: Mapping[str, int]) -> str:
    """Return the page as Markdown."""
    found: dict[str, Counter[str]] = {}
    for case in own:
        name = case.get("classname", "").rpartition(".")[2]
        outcome = next((each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed")
        found.setdefault(name, Counter())[outcome] += 1
    table = [
        line(name, each["passed"], each["failure"] + each["error"], each["skipped"])
        for name, each in sorted(found.items())
    ]
    rows = choose_rows(rows, list(least))
    short = [
        f"`{row['file']}` {counts([row])['passed']} of at least {least[row['file']]}"
        for row in rows
        if counts([row])["passed"] < least[row["file"]]
    ]
    parts = [
        "# Serving",
        f"Made by `make vllm-tests VLLM={version}`: vLLM {version}, built without compiled kernels, on the host "
        "chip, with tiny models of random weights, under `ISTHMUS_STRICT=1`, so without a fallback to the CPU.",
        "## Tests of the plugin",
        "\n".join([*head("tests", "passed", "failed", "skipped"), *table])
        if table
        else "Not run as a whole yet.",
        "## vLLM's own tests",
        "Unmodified, with the architectures of the models that they name and no weights. "
        f"{len(rows)} of {len(least)} files have been run. "
        + (f"Fewer than the goal: {', '.join(short)}." if short else "Each file passes as many as its goal."),
        *tables(rows, REASONS, lambda file: file),
    ]
    return "\n\n".join(parts) + "\n"
