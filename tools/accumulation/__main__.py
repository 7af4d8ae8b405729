"""Write docs/results/accumulation.md: ``python -m tools.accumulation``, by ``make accumulation``.

Exits with 1 if a sum of the chip is not float64's rounded once, or a model's loss is off by more than 1 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import mean

from isthmus.chip import compute_dtypes
from tools.repository import ROOT

from . import errors, models

PAGE = ROOT / "docs/results/accumulation.md"
ALLOWED = 0.01  # of the mean loss of the last steps

# Why an operator's results are not float64's rounded once, though nothing is summed in 16 bits.
_PARTS = "several operators, each rounded, on CUDA too"
_ELEMENTS = "elements are computed in 16 bits; what is averaged, in float32"
REASONS = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": "probabilities are rounded before products, as on CUDA",
    "_trilinear": _PARTS,
    "addmm": "the product is rounded before the addend",
    "addmv": "the product is rounded before the addend",
    "addr": _ELEMENTS,
    "binary_cross_entropy": _ELEMENTS,
    "binary_cross_entropy_backward": _ELEMENTS,
    "binary_cross_entropy_with_logits": _PARTS,
    "glu_backward": _ELEMENTS,
    "histc": "the edges of the bins are rounded; nothing is added in 16 bits",
    "huber_loss": _ELEMENTS,
    "huber_loss_backward": _ELEMENTS,
    "linalg_cross": _ELEMENTS,
    "linspace": _ELEMENTS,
    "logsumexp": _PARTS,
    "mse_loss": _ELEMENTS,
    "mse_loss_backward": _ELEMENTS,
    "native_layer_norm": "a row of one element: large float32 numbers cancel",
    "renorm": _PARTS,
    "rsub": _ELEMENTS,
    "smooth_l1_loss": _ELEMENTS,
    "soft_margin_loss": _PARTS,
    "soft_margin_loss_backward": _PARTS,
}


def rows_of_errors(worst: dict[str, list[float]]) -> tuple[list[str], list[str]]:
    """Return the table's rows, and the operators of the chip whose error has no reason."""
    rules = {"index_put", "_unsafe_masked_index_put_accumulate"}  # made of operators that have one
    rules |= {name.removeprefix("sparse ") for name in compute_dtypes.rules()}
    rows, wrong = [], []
    for name, (cpu, chip) in sorted(worst.items()):
        if max(cpu, chip) <= errors.ROUNDED_ONCE:
            continue
        why = "in float32 on the chip" if name in rules else REASONS.get(name, "")
        if chip > errors.ROUNDED_ONCE and name not in REASONS:
            wrong.append(name)
        rows.append(f"| `{name}` | {cpu:.2f} | {chip:.2f} | {why} |")
    return rows, wrong


def _losses_as_on_the_cpu() -> dict[str, list[float]]:
    """Return the losses of the chip that sums as the CPU does; the option is read when the chip is registered."""
    code = (
        "import json; from tools.accumulation import models; "
        "print(json.dumps({m.name: models.losses(m, 'chip') for m in models.MODELS}))"
    )
    environment = os.environ | {"ISTHMUS_HOST_ACCUMULATE": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(found.stdout.splitlines()[-1]))


def rows_of_models() -> tuple[list[str], list[str]]:
    """Return the table's rows, and the models whose loss is off."""
    saturating = _losses_as_on_the_cpu()
    rows, wrong = [], []
    for model in models.MODELS:
        print(f"accumulation: {model.name}", file=sys.stderr, flush=True)
        chip = models.losses(model, "chip")
        with models.Float32():
            exact = models.losses(model, "cpu")
        reference, found, narrow = (
            mean(losses[-models.LAST :]) for losses in (exact, chip, saturating[model.name])
        )
        if abs(found - reference) > ALLOWED * reference:
            wrong.append(model.name)
        rows.append(
            f"| {model.name} | {exact[0]:.3f} | {reference:.4f} | {found:.4f} | {found / reference - 1:+.2%} | "
            f"{narrow / reference - 1:+.2%} |"
        )
    return rows, wrong


def main() -> int:
    found = errors.measure()
    operators, wrong = rows_of_errors(found.worst)
    trained, off = rows_of_models()
    PAGE.write_text(
        "\n".join(
            [
                "# Sums of 16-bit numbers",
                "",
                "Made by `make accumulation`. On the host chip many-to-one sums of bfloat16 and float16 "
                "are added in float32, as CUDA's kernels add them, and rounded once; "
                "`ISTHMUS_HOST_ACCUMULATE=cpu` gives the CPU's bits.",
                "",
                f"Below: the operators of op_db's samples and their gradients ({len(found.worst)} below autograd, "
                "bfloat16 and float16) whose largest error exceeds one rounding of float64's result. The unit is "
                "the distance between neighbouring 16-bit numbers: 0.50 is one rounding.",
                "",
                "| operator | CPU | chip | why |",
                "| --- | --- | --- | --- |",
                *operators,
                "",
                "## Models in bfloat16 alone",
                "",
                f"Weights, gradients and AdamW's state in bfloat16, {models.STEPS} steps. Reference: the CPU with "
                f"every operator in float32, rounded once. Loss: mean of the last {models.LAST} steps.",
                "",
                "| model | first loss | reference | chip | difference | summed as on the CPU |",
                "| --- | --- | --- | --- | --- | --- |",
                *trained,
                "",
            ]
        )
    )
    print(f"written: {PAGE.relative_to(ROOT)}")
    for name in (*wrong, *off):
        print(f"accumulation: {name} is not float32's")
    return 1 if wrong or off else 0


if __name__ == "__main__":
    sys.exit(main())
