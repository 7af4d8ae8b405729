"""Runs PyTorch's operator samples through torch_npu on the reference runtime and compares with the CPU.

Usage: isthmus ascend run -m tools.ascend.opinfo [OPERATOR ...]

This is the check of the table that does not share its reading of it: torch_npu decides which aclnn function gets
what. Operators that draw random numbers are left out, as are results that are not unique.
"""

import itertools
import sys
import warnings
from typing import Any

import torch
import torch_npu  # noqa: F401  # brings the device
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

LEFT_OUT = (
    "rand normal bernoulli multinomial dropout uniform exponential cauchy geometric log_normal empty rrelu alpha "
    "svd eig qr lobpcg householder jiterator fractional"
).split()
DTYPES = (torch.float32, torch.int64, torch.bool)
SAMPLES, EVERY = 6, 7


def moved(value: Any, device: str) -> Any:
    """Return the value with its tensors on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(moved(element, device) for element in value)
    if isinstance(value, dict):
        return {key: moved(element, device) for key, element in value.items()}
    return value


def difference(operator: OpInfo, sample: Any) -> str | None:
    """Return what is wrong on the NPU; None if nothing is."""
    expected = operator(sample.input, *sample.args, **sample.kwargs)
    try:
        given = (moved(part, "npu") for part in (sample.input, sample.args, sample.kwargs))
        first, arguments, keywords = given
        actual = moved(operator(first, *arguments, **keywords), "cpu")
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False, rtol=1e-4, atol=1e-4)
    except Exception as error:
        return str(error).replace("\n", " ")
    return None


def main() -> None:
    """Print the counts, and one line per operator and dtype that differs."""
    warnings.filterwarnings("ignore")
    agreed, wrong = 0, {}
    for operator in op_db:
        name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        if (sys.argv[1:] and operator.name not in sys.argv[1:]) or any(part in name for part in LEFT_OUT):
            continue
        for dtype in DTYPES:
            if dtype not in operator.supported_dtypes("cpu"):
                continue
            samples = operator.sample_inputs("cpu", dtype, requires_grad=False)
            for sample in itertools.islice(samples, 0, SAMPLES * EVERY, EVERY):
                if found := difference(operator, sample):
                    wrong.setdefault((name, str(dtype).removeprefix("torch.")), found)
                else:
                    agreed += 1
    print(f"{agreed} samples agree; {len(wrong)} operators and dtypes differ")
    for (name, kind), found in wrong.items():
        print(f"{name} {kind}: {found[:300]}")


if __name__ == "__main__":
    main()
