"""Generate docs/results/ascend-hugging-face.md: tests of transformers and accelerate over the reference runtime."""

from __future__ import annotations

from tools.ascend.vendor.page import choose_rows, tables
from tools.suites import Row

# Missing requirement -> pattern of a test's message; the first match counts. None of them is a fault of the runtime.
MISSING = {
    "a file of the Hugging Face Hub": r"(?i)offline|hub|couldn.t connect|LocalEntryNotFound|not a local folder|"
    r"is gated|load the model from hf-",
    "a slow test": r"test is slow",
    "Triton": r"InductorError|active drivers",
    "a start from the root of its repository": r"^Command .*pytest",
    "a process group of gloo alone, made by the test": r"No backend type associated with device type npu",
    "another device": r"(?i)require[sd]? .*(cuda|xpu|mps|rocm|hpu|mlu|gpu|tpu|xla|neuron)",
    "more devices than two": r"(?i)requires? .*(three|four|3|4|8) ",
    "a package that is not installed": r"(?i)ModuleNotFoundError|No module named|not installed|"
    r"requires? (?!only)(the )?[\w. -]+$",
    "a property that the model lacks": r"(?i)^\w*model(tester)? .*(not|no)\b|^this model|^.?\w*pipeline|"
    r"^\w+::test_pipeline|^no (subconfigs|MTP)|^test_\w+ is set to .False|tensor parallel .* not enabled",
}


def page(rows: list[Row], names: list[str], revisions: dict[str, str]) -> str:
    """Return the page as Markdown, for the files of the default parts."""
    rows = choose_rows(rows, names)
    commits = " and ".join(f"huggingface/{name} at {commit}" for name, commit in revisions.items())
    parts = [
        "# Tests of transformers and accelerate on NPUs",
        f"Made by `make ascend-hugging-face`: tests of {commits}, with the vendor's torch_npu 2.13.0, over the "
        f"reference runtime of AscendCL on two host devices, without a download. {len(rows)} of {len(names)} files "
        "have been run: of transformers the tests of some models with small random weights, of accelerate the files "
        "with tests that ask for an accelerator. Share: passed, of the tests that are neither skipped nor lack "
        "something named below; a test that is cut off has not passed.",
        "`Tensor-likes are not close!` is of mixtral's test_model_parallelism, whose results vary: torch_npu's copy "
        "to another device does not make that device's stream wait if it also casts (copy_d2d of CopyKernel.cpp).",
        *tables(rows, MISSING, lambda file: "/".join(file.split("/")[:-1][:3])),
    ]
    return "\n\n".join(parts) + "\n"
