"""Every patch of Megatron: target, reason, signatures of the versions that it was written for, replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import typing_extensions

from isthmus.megatron import attention, helpers, norm, options, prefetch, recompute, rotary


class Replacement(NamedTuple):
    """One patch.

    Attributes:
        module: applied when this module has been imported.
        name: what is replaced, from the module on.
        make: builds the replacement from the original.
        reason: one line: what does not work without it.
        signatures: hashes of the original's signature (megatron-core 0.16 to 0.20); () for what is no function.
        only_if_missing: leave it where the module has it and it is not None.
        is_optional: the module is Megatron-LM's, which megatron-core does without.
        checked: the function whose signature counts, where it is not the target.
    """

    module: str
    name: str
    make: Callable[[Any], Any]
    reason: str
    signatures: tuple[str, ...] = ()
    only_if_missing: bool = False
    is_optional: bool = False
    checked: str = ""

    @property
    def target(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"


_CORE = "megatron.core"
_ROTARY = f"{_CORE}.models.common.embeddings.rope_utils"

REPLACEMENTS = (
    Replacement(
        "typing",
        "override",
        lambda _: typing_extensions.override,
        "Megatron-LM 0.20 imports it, and Python has it from 3.12 on",
        only_if_missing=True,
    ),
    Replacement(
        f"{_CORE}.transformer.torch_norm",
        "WrappedTorchNorm.__new__",
        norm.instead_of_torch_norm,
        "torch's norms refuse sequence parallelism",
        ("29f82669ff64",),
    ),
    Replacement(
        f"{_CORE}.fusions.fused_layer_norm",
        "FusedLayerNorm.__new__",
        norm.instead_of_apex_norm,
        "it is taken for the last norm of a block, and refuses RMSNorm",
        ("cce5d81576d0",),
        checked="FusedLayerNorm.__init__",
    ),
    Replacement(
        f"{_CORE}.transformer.dot_product_attention",
        "DotProductAttention.__init__",
        attention.over_context_ranks,
        "it refuses context parallelism",
        ("01f9b3714355",),
    ),
    Replacement(
        f"{_CORE}.transformer.dot_product_attention",
        "DotProductAttention.forward",
        attention.fused,
        "it holds the scores of all pairs and ignores context parallelism",
        ("93880c358b63",),
    ),
    Replacement(
        _ROTARY,
        "fused_apply_rotary_pos_emb",
        rotary.fused,
        "--apply-rope-fusion, the default, asks for Transformer Engine",
        ("ced8b0560c9b", "beb7e72a4a20", "e5f7bc98a4f0"),
        only_if_missing=True,
        checked="apply_rotary_pos_emb",
    ),
    Replacement(
        _ROTARY,
        "fused_apply_rotary_pos_emb_thd",
        rotary.fused_packed,
        "the same for packed sequences",
        ("ced8b0560c9b", "beb7e72a4a20", "e5f7bc98a4f0"),
        only_if_missing=True,
        checked="apply_rotary_pos_emb",
    ),
    Replacement(
        f"{_CORE}.transformer.transformer_config",
        "TransformerConfig.__post_init__",
        rotary.interleaved_as_well,
        "it asks for Transformer Engine 2.3 where the fused rotary embedding is interleaved",
        ("f4ca892d9e9f",),
    ),
    Replacement(
        f"{_CORE}.datasets.utils",
        "compile_helpers",
        helpers.compile_helpers,
        "its Makefile asks for pybind11 and for the python3-config of whatever Python is first on PATH",
        ("2e38e77b22c3",),
    ),
    Replacement(
        f"{_CORE}.transformer.moe.moe_utils",
        "te_general_gemm",
        lambda _: None,
        "0.16 leaves the name undefined where Transformer Engine is absent, and routers ask for it",
        only_if_missing=True,
    ),
    Replacement(
        f"{_CORE}.tensor_parallel",
        "checkpoint",
        recompute.stops_early,
        "--optimize-recomp-communication-level: its recompute repeats every collective",
        ("5636527b7fe7",),
    ),
    Replacement(
        f"{_CORE}.tensor_parallel.layers",
        "reduce_scatter_to_sequence_parallel_region",
        prefetch.under_recompute,
        "--optimize-recomp-communication-level: its gradient is gathered before, not during the recompute",
        ("4cc0056a0d1a",),
    ),
    Replacement(
        f"{_CORE}.transformer.transformer_layer",
        "TransformerLayer.forward",
        recompute.halved,
        "--optimize-recomp-communication-level 2: halves of a layer as checkpoints of their own",
        ("497ccff2d17a", "c591545d39f8"),
    ),
    Replacement(
        "megatron.training.arguments",
        "add_megatron_arguments",
        options.with_options,
        "Megatron-LM takes --optimize-recomp-communication-level and other options of AscendSpeed",
        ("8aa4240c52bb",),
        is_optional=True,
    ),
    Replacement(
        "megatron.training.arguments",
        "get_device_arch_version",
        options.without_hardware_queues,
        "CUDA_DEVICE_MAX_CONNECTIONS=1 is demanded for an order of kernels in CUDA's queues, below version 10",
        ("2e38e77b22c3",),
        is_optional=True,
    ),
)
