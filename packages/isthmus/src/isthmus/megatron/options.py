"""AscendSpeed's command-line options for Megatron's parser.

Options that only save time or memory on Ascend are accepted with a notice. Unsupported options that change results
end the job with an error.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from isthmus.megatron import recompute
from isthmus_common import patches

CONTEXT_PARALLEL = {"megatron_cp_algo": "p2p", "kvallgather_cp_algo": "all_gather", "ulysses_cp_algo": "a2a"}

_ALWAYS = "it is always enabled"
_TUNING = "it tunes another chip"
_WINDOW = "use --window-size for a sliding window"
_MEMORY = "it saves no memory here"
_RECOMPUTE = "use --recompute-granularity selective --recompute-modules"


class Option(NamedTuple):
    """An option that has no effect, or is not supported.

    Attributes:
        name: name with dashes.
        why: why it has no effect.
        takes: type of its value; None for a flag.
        without_effect: accepted values; None for all, () for none.
        remedy: what to do instead, for other values.
    """

    name: str
    why: str
    takes: type | None = None
    without_effect: tuple[Any, ...] | None = None
    remedy: str = "omit it"


def _all(names: str, why: str, takes: type | None = None) -> tuple[Option, ...]:
    return tuple(Option(f"--{name}", why, takes) for name in names.split())


def _none(names: str, remedy: str, takes: type | None = None) -> tuple[Option, ...]:
    return tuple(Option(f"--{name}", "", takes, (), remedy) for name in names.split())


OPTIONS = (
    *_all("use-flash-attn use-fusion-attn-v2 use-fused-rmsnorm use-fused-rotary-pos-emb", _ALWAYS),
    *_all("use-rotary-position-embeddings use-mcore-models gemm-gradient-accumulation-fusion", _ALWAYS),
    *_all("use-cp-send-recv-overlap use-fused-ring-attention-update disable-gloo-group", _ALWAYS),
    *_all("use-fused-swiglu", "Megatron fuses SwiGLU itself; --no-bias-swiglu-fusion disables it"),
    *_all("jit-compile use-ascend-mc2 use-ascend-coc coc-fused-kernel megatron-cp-in-bnsd", _TUNING),
    *_all("attention-mask-on-cpu optimize-send-recv-comm optimize-vpp-send-recv-comm", _TUNING),
    *_all("async-log-allreduce hccl-group-buffer-adaptive use-nd-matmul", _TUNING),
    *_all("moe-permutation-async-comm moe-allgather-overlap-comm moe-alltoall-overlap-comm", _TUNING),
    *_all("use-fused-moe-token-permute-and-unpermute", _TUNING),
    *_all("optimization-level coc-parallel-num coc-mode cp-window-size hccl-slice-size", _TUNING, int),
    *_all("shape-order hccl-group-buffer", _TUNING, str),
    *_all("reuse-fp32-param swap-attention swap-optimizer smart-swap", _MEMORY),
    *_all("adaptive-recompute-device-swap adaptive-memory-optimization recompute-in-bubble", _MEMORY),
    *_all("recompute-in-advance enable-recompute-layers-per-pp-rank", _MEMORY),
    *_all("adaptive-recompute-device-size adaptive-recompute-profiling-step", _MEMORY, int),
    *_all("recompute-activation-function-num-layers recompute-norm-num-layers", _MEMORY, int),
    *_all("swap-optimizer-times", _MEMORY, int),
    *_all("swap-modules moe-zero-memory", _MEMORY, str),
    *_all("recompute-activation-function", f"{_MEMORY}; {_RECOMPUTE} mlp"),
    *_all("recompute-norm", f"{_MEMORY}; {_RECOMPUTE} layernorm"),
    *_all("op-cal-tflops", "isthmus run prints TFLOPs and MFU"),
    Option("--optimizer-selection", _ALWAYS, str, ("fused_adamw", "fused_torch_adamw")),
    Option("--moe-model-type", _ALWAYS, str, ("megatron_moe",)),
    Option("--attention-mask-type", _ALWAYS, str, ("causal",), "context parallelism requires a causal mask"),
    Option("--sparse-mode", _TUNING, int, (0, 2, 3), _WINDOW),
    Option("--pre-tockens", _ALWAYS, int, (65536,), _WINDOW),
    Option("--next-tockens", _ALWAYS, int, (0,), _WINDOW),
    *_none("use-unpad variable-seq-lengths", "pack sequences in the data loader"),
    *_none("square-alibi-mask fill-neg-inf use-ema layerzero enable-zero3 tp-2d use-pipe-experts", "omit it"),
    *_none("moe-tp-extend-ep use-nanopipe use-multiparameter-pipeline-model-parallel", "omit it"),
    *_none("ulysses-degree-in-cp ampipe-degree", "omit it", int),
    *_none("noop-layers", "use --pipeline-model-parallel-layout", str),
)


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add AscendSpeed's options to a parser, except those that it already has.

    Values are stored under the option's name, for scripts that read them.
    """
    group = parser.add_argument_group("isthmus", "options of AscendSpeed")
    group.add_argument(
        recompute.OPTION,
        type=int,
        choices=recompute.LEVELS,
        default=0,
        action=_SetLevel,
        help="collectives repeated when a layer is recomputed: 0: two, 1: one, 2: none (stores one more activation)",
    )
    group.add_argument(
        "--context-parallel-algo",
        action=_SetContextParallel,
        help=f"{', '.join(CONTEXT_PARALLEL)}: aliases of --cp-comm-type {', '.join(CONTEXT_PARALLEL.values())}",
    )
    group.add_argument(
        "--npu-deterministic",
        action=_SetDeterministic,
        nargs=0,
        default=False,
        help="bit-identical results in every run",
    )
    for option in OPTIONS:
        if option.name not in parser._option_string_actions:
            values: dict[str, Any] = (
                {"type": option.takes} if option.takes else {"nargs": 0, "default": False}
            )
            group.add_argument(option.name, action=_Reported, option=option, help=argparse.SUPPRESS, **values)
    return parser


def with_options(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``add_megatron_arguments`` that adds the options."""

    @functools.wraps(original)
    def add_megatron_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return add_options(original(parser))

    return add_megatron_arguments


class _SetLevel(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        recompute.set_level(values)
        setattr(namespace, self.dest, values)


class _SetContextParallel(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values not in CONTEXT_PARALLEL:
            _refuse(parser, f"{option_string} {values}", f"use {', '.join(CONTEXT_PARALLEL)}")
        kind = CONTEXT_PARALLEL[values]
        # Megatron-LM's option takes one kind per layer.
        namespace.cp_comm_type = [kind] if isinstance(parser.get_default("cp_comm_type"), list) else kind
        setattr(namespace, self.dest, values)


class _SetDeterministic(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        torch.use_deterministic_algorithms(True)
        setattr(namespace, self.dest, True)


class _Reported(argparse.Action):
    """Stores the value, after printing a notice."""

    def __init__(self, option_strings: Sequence[str], dest: str, option: Option, **settings: Any) -> None:
        super().__init__(option_strings, dest, **settings)
        self.option = option

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        _, why, takes, without_effect, remedy = self.option
        given = f"{option_string} {values}" if takes else str(option_string)
        if without_effect is not None and values not in without_effect:
            _refuse(parser, given, remedy)
        if os.environ.get("RANK", "0") == "0":
            _print_once(f"isthmus: {given} has no effect: {why}")
        setattr(namespace, self.dest, values if takes else True)


def without_hardware_queues(original: Callable[[], int]) -> Callable[[], int]:
    """Replacement for ``get_device_arch_version``: at least 10, which needs no CUDA_DEVICE_MAX_CONNECTIONS."""

    @functools.wraps(original)
    def get_device_arch_version() -> int:
        return max(original(), 10) if patches.active("shim") else original()

    return get_device_arch_version


@functools.cache  # Megatron parses its arguments several times
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def _refuse(parser: argparse.ArgumentParser, given: str, remedy: str) -> None:
    """Exit with one line, without argparse's long usage text."""
    parser.exit(2, f"isthmus: {given} is not supported: {remedy}\n")
