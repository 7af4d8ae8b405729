"""What a job depends on besides its calls: environment, packages, arguments, switches, random states."""

import hashlib
import os
import platform
import random
import sys
from importlib.metadata import distributions
from typing import Any

import numpy as np
import torch

_VARIABLES = ("ISTHMUS_", "TORCH", "PYTORCH_", "CUDA_", "ASCEND_", "HCCL_", "NCCL_", "OMP_", "MKL_", "NVIDIA_", "TF_")
_SWITCHES = ("CUBLAS_WORKSPACE_CONFIG", "LCCL_DETERMINISTIC", "PYTHONHASHSEED", "WORLD_SIZE")


def describe() -> dict[str, Any]:
    """Return what this process depends on, by section; values are JSON."""
    return {
        "system": _system(),
        "packages": {each.name: each.version for each in distributions() if each.name},
        "environment": _environment(),
        "arguments": {"program": sys.argv[0] if sys.argv else "", "arguments": sys.argv[1:]},
        "switches": _determinism(),
        "random": _random_states(),
    }


def _system() -> dict[str, Any]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "accelerator": str(accelerator) if accelerator else "cpu",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _environment() -> dict[str, str]:
    return {
        key: value
        for key, value in sorted(os.environ.items())
        if key in _SWITCHES or (key.startswith(_VARIABLES) and not key.startswith("ISTHMUS_DUMP"))
    }


def _determinism() -> dict[str, Any]:
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype())[6:],
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def _random_states() -> dict[str, str]:
    states = {
        "python": repr(random.getstate()).encode(),
        "numpy": repr(np.random.get_state()).encode(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if (accelerator := torch.accelerator.current_accelerator(check_available=True)) is not None:
        module = torch.get_device_module(accelerator)
        if hasattr(module, "get_rng_state"):
            states["accelerator"] = module.get_rng_state().cpu().numpy().tobytes()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}
