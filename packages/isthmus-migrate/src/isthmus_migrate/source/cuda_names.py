"""PyTorch's CUDA names as data: the rule, severity and replacement of each.

Analysis and conversion both read this table. In a replacement, ``{module}`` is the module of the current device,
``torch.get_device_module(DEVICE)``, ``{device}`` the device and ``{type}`` its type.
"""

import enum
from typing import NamedTuple

from isthmus_common.tensor_types import TENSOR_TYPES
from isthmus_migrate.source.findings import Severity
from isthmus_migrate.source.unconverted import UNCONVERTED


class Guard(enum.Enum):
    """The condition under which the replacement of a name may be called."""

    NONE = "none"  # everywhere, including on the CPU
    ACCELERATOR = "accelerator"  # with an accelerator only
    APART = "apart"  # with an accelerator other than MPS, whose module lacks it
    CUDA = "cuda"  # on CUDA only; skipped elsewhere


class CudaName(NamedTuple):
    """Conversion of a name.

    Attributes:
        code: of the rule.
        severity: who has to act.
        advice: what to do, or what the rule does.
        becomes: the replacement; "" if a separate rule writes it, or none does.
        guard: where the replacement may be called.
        otherwise: source of the value if the guard fails.
        accelerator: the replacement where there is an accelerator, if it has one of its own.
    """

    code: str
    severity: Severity
    advice: str
    becomes: str = ""
    guard: Guard = Guard.NONE
    otherwise: str = "None"
    accelerator: str = ""

    @property
    def stays(self) -> bool:
        """Whether it is converted around by nothing: a person has to port what uses it."""
        return self.severity is Severity.MANUAL and not self.becomes


_AUTOMATIC, _REVIEW = Severity.AUTOMATIC, Severity.REVIEW


def _names_on_any_device(code: str, **names: str) -> dict[str, CudaName]:
    return {
        f"torch.cuda.{name}": CudaName(code, _AUTOMATIC, f"becomes {becomes}", becomes)
        for name, becomes in names.items()
    }


def _name_by_device(code: str, becomes: str, accelerator: str) -> CudaName:
    return CudaName(code, _AUTOMATIC, f"becomes {becomes}", becomes, accelerator=accelerator)


def _guarded_names(
    code: str, names: str, otherwise: str = "None", owner: str = "{module}", severity: Severity = _AUTOMATIC
) -> dict[str, CudaName]:
    """Return the entries of functions that need an accelerator; ``old=new`` is renamed."""
    pairs = [(old, new or old) for old, _, new in (each.partition("=") for each in names.split())]
    return {
        f"torch.cuda.{old}": CudaName(
            code, severity, f"becomes {owner}.{new}", f"{owner}.{new}", Guard.ACCELERATOR, otherwise
        )
        for old, new in pairs
    }


def _cuda_only(code: str, names: str, otherwise: str = "None") -> dict[str, CudaName]:
    advice = "is meaningful on CUDA only: kept there, skipped elsewhere"
    return {
        name: CudaName(code, _REVIEW, advice, name, Guard.CUDA, otherwise)
        for name in (f"torch.cuda.{each}" for each in names.split())
    }


def _own_rule(code: str, advice: str, names: str, severity: Severity = _AUTOMATIC) -> dict[str, CudaName]:
    return {name: CudaName(code, severity, advice) for name in names.split()}


_AVAILABILITY = {
    **_names_on_any_device(
        "IM110", is_available="torch.accelerator.is_available", device_count="torch.accelerator.device_count"
    ),
    **_guarded_names("IM110", "init"),
    **_guarded_names("IM110", "is_initialized", "False"),
    "torch.backends.cuda.is_built": CudaName(
        "IM110", _REVIEW, "becomes torch.accelerator.is_available", "torch.accelerator.is_available"
    ),
}

_DEVICES = {
    "torch.cuda.set_device": _name_by_device(
        "IM111", "{module}.set_device", "torch.accelerator.set_device_index"
    ),
    "torch.cuda.current_device": _name_by_device(
        "IM111", "{module}.current_device", "torch.accelerator.current_device_index"
    ),
    **_guarded_names("IM111", "device device_of", "contextlib.nullcontext()"),
    **_guarded_names("IM111", "can_device_access_peer", "False", severity=_REVIEW),
}

_SYNCHRONIZE = {
    "torch.cuda.synchronize": _name_by_device(
        "IM112", "{module}.synchronize", "torch.accelerator.synchronize"
    )
}

# Memory in bytes. torch.accelerator takes the device by position only.
_MEMORY = {
    **_guarded_names(
        "IM113",
        "empty_cache reset_peak_memory_stats reset_max_memory_allocated=reset_peak_memory_stats "
        "reset_max_memory_cached=reset_peak_memory_stats reset_accumulated_memory_stats",
        owner="torch.accelerator",
    ),
    **_guarded_names(
        "IM113",
        "memory_allocated memory_cached=memory_reserved memory_reserved max_memory_allocated "
        "max_memory_cached=max_memory_reserved max_memory_reserved",
        "0",
        "torch.accelerator",
    ),
    **_guarded_names(
        "IM113", "memory_stats", "collections.Counter()", "torch.accelerator"
    ),  # 0 for every key
    **_guarded_names("IM113", "mem_get_info=get_memory_info", "(0, 0)", "torch.accelerator"),
    **_guarded_names("IM113", "memory_summary", "{q}{q}", severity=_REVIEW),
    **_guarded_names("IM113", "memory_snapshot", "[]", severity=_REVIEW),
    **_guarded_names("IM113", "memory_stats_as_nested_dict", "{}", severity=_REVIEW),
    **_guarded_names("IM113", "set_per_process_memory_fraction", severity=_REVIEW),
}

_HISTORY = {
    **_guarded_names("IM114", "memory._record_memory_history memory._dump_snapshot", severity=_REVIEW),
    **_guarded_names("IM114", "memory._snapshot", "{}", severity=_REVIEW),
}

_PROPERTIES = {
    **_guarded_names("IM115", "get_device_name", "{type}"),
    **_guarded_names("IM115", "is_bf16_supported", "False"),
    "torch.cuda.get_device_properties": CudaName(
        "IM115",
        _REVIEW,
        "becomes {module}.get_device_properties; its fields differ between accelerators",
        "{module}.get_device_properties",
    ),
    **_cuda_only("IM115", "get_device_capability", "(0, 0)"),
    **_cuda_only("IM115", "is_tf32_supported", "False"),
    **_cuda_only("IM115", "get_arch_list", "[]"),
    **_cuda_only("IM115", "get_gencode_flags", "{q}{q}"),
}

# Fields of get_device_properties with the compute capability, which only CUDA has.
CAPABILITY = frozenset({"major", "minor"})

_STREAMS = {
    **_names_on_any_device(
        "IM116",
        current_stream="{module}.current_stream",
        stream="{module}.stream",
        Stream="{module}.Stream",
        Event="{module}.Event",
        StreamContext="{module}.StreamContext",
    ),
    **_guarded_names("IM116", "default_stream", "{module}.current_stream()", severity=_REVIEW),
    **_guarded_names("IM116", "set_stream", owner="torch.accelerator"),
}

# Attributes of streams and events that are handles of CUDA's runtime.
HANDLES = frozenset({"cuda_stream", "cuda_event"})

_RANDOM = {
    **_guarded_names(
        "IM117", "manual_seed manual_seed_all seed seed_all get_rng_state set_rng_state set_rng_state_all"
    ),
    **_guarded_names("IM117", "initial_seed", "torch.initial_seed()"),
    **_guarded_names("IM117", "get_rng_state_all", "[]"),
    **_guarded_names("IM117", "default_generators", "()", severity=_REVIEW),
}

# Names of torch.amp, and the modules with CUDA versions of them.
AMP_NAMES = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
AMP_MODULES = frozenset({"torch.cuda.amp", "torch.cuda.amp.autocast_mode", "torch.cuda.amp.grad_scaler"})

_AMP = {
    **_own_rule("IM118", "becomes torch.amp.autocast(DEVICE.type)", "torch.cuda.amp.autocast"),
    **_own_rule("IM118", "becomes torch.amp.GradScaler(DEVICE.type)", "torch.cuda.amp.GradScaler"),
    **_own_rule(
        "IM118", "takes device_type=DEVICE.type", "torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd"
    ),
    **_own_rule(
        "IM118", "becomes torch.get_autocast_dtype, with DEVICE.type", "torch.get_autocast_gpu_dtype"
    ),
    "torch.set_autocast_gpu_dtype": CudaName(
        "IM118", _AUTOMATIC, "becomes torch.set_autocast_dtype, with DEVICE.type", guard=Guard.ACCELERATOR
    ),
}

_TYPES = _own_rule(
    "IM120", "becomes a dtype and a device", " ".join(f"torch.cuda.{name}" for name in TENSOR_TYPES), _REVIEW
)

_NVTX = {
    "torch.cuda.nvtx.range": CudaName(
        "IM121", _AUTOMATIC, "becomes torch.profiler.record_function", "torch.profiler.record_function"
    ),
    **_cuda_only("IM121", "nvtx.range_push nvtx.range_pop nvtx.range_start nvtx.range_end nvtx.mark"),
    **_cuda_only("IM121", "profiler.start profiler.stop"),
}

# Assignments to these stay: PyTorch accepts them on every machine, and only CUDA reads them.
FLAGS = _own_rule(
    "IM122",
    "stays: PyTorch accepts it on every machine, and only CUDA reads it",
    "torch.backends.cudnn.benchmark torch.backends.cudnn.deterministic torch.backends.cudnn.enabled "
    "torch.backends.cudnn.allow_tf32 torch.backends.cudnn.fastest torch.backends.cudnn.benchmark_limit "
    "torch.backends.cudnn.conv.fp32_precision torch.backends.cudnn.rnn.fp32_precision "
    "torch.backends.cuda.matmul.allow_tf32 torch.backends.cuda.matmul.fp32_precision "
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction "
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    Severity.NONE,
)

_ERRORS = _names_on_any_device(
    "IM126", OutOfMemoryError="torch.OutOfMemoryError", AcceleratorError="torch.AcceleratorError"
)

_CUDA_ONLY = {
    **_cuda_only("IM127", "ipc_collect set_sync_debug_mode"),
    **_cuda_only("IM127", "utilization temperature power_draw clock_rate", "0"),
    **_cuda_only("IM127", "is_current_stream_capturing", "False"),
}

NAMES: dict[str, CudaName] = {
    **_AVAILABILITY,
    **_DEVICES,
    **_SYNCHRONIZE,
    **_MEMORY,
    **_HISTORY,
    **_PROPERTIES,
    **_STREAMS,
    **_RANDOM,
    **_AMP,
    **_TYPES,
    **_NVTX,
    **FLAGS,
    **_ERRORS,
    **_CUDA_ONLY,
    **{name: found for entry in UNCONVERTED for name, found in _own_rule(*entry).items()},
}

# Submodules that torch.cuda re-exports, and modules with the same names under another path.
_SAME = {
    "torch.cuda.memory.": "torch.cuda.",
    "torch.cuda.random.": "torch.cuda.",
    "torch.cuda.streams.": "torch.cuda.",
    "torch.cuda.amp.autocast_mode.": "torch.cuda.amp.",
    "torch.cuda.amp.grad_scaler.": "torch.cuda.amp.",
}


def canonical(name: str) -> str:
    """Return the name used in the table: ``torch.cuda.empty_cache`` for ``torch.cuda.memory.empty_cache``."""
    if name in NAMES:
        return name
    for prefix, instead in _SAME.items():
        if name.startswith(prefix):
            return instead + name.removeprefix(prefix)
    return name


def look_up(name: str) -> CudaName | None:
    """Return the entry of a qualified name, or None."""
    return NAMES.get(canonical(name))
