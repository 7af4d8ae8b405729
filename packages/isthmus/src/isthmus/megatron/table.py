"""The patches of Megatron: target, reason, supported signatures, replacement."""

from collections.abc import Callable
from typing import Any, NamedTuple

import typing_extensions

from isthmus.megatron import attention, helpers, norm, options, prefetch, recompute, rotary


class Replacement(NamedTuple):
    """One patch.

    Attributes:
        module: the patch is applied once this module is imported.
        name: name of the target in the module.
        make: builds the replacement from the original.
        reason: one line: what fails without it.
        signatures: hashes of supported signatures (megatron-core 0.16 to 0.20); () if not a function.
        only_if_missing: apply only if the target is missing or None.
        is_optional: the module is part of Megatron-LM, not of megatron-core.
        checked: function whose signature is checked, if not the target.
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
        "Megatron-LM 0.20 imports it; Python has it since 3.12",
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
        "it is used for the last norm of a block, and refuses RMSNorm",
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
        "it materializes all scores and ignores context parallelism",
        ("93880c358b63",),
    ),
    Replacement(
        _ROTARY,
        "fused_apply_rotary_pos_emb",
        rotary.fused,
        "--apply-rope-fusion, the default, needs Transformer Engine",
        ("ced8b0560c9b", "beb7e72a4a20", "e5f7bc98a4f0"),
        only_if_missing=True,
        checked="apply_rotary_pos_emb",
    ),
    Replacement(
        _ROTARY,
        "fused_apply_rotary_pos_emb_thd",
        rotary.fused_packed,
        "--apply-rope-fusion for packed sequences needs Transformer Engine",
        ("ced8b0560c9b", "beb7e72a4a20", "e5f7bc98a4f0"),
        only_if_missing=True,
        checked="apply_rotary_pos_emb",
    ),
    Replacement(
        f"{_CORE}.transformer.transformer_config",
        "TransformerConfig.__post_init__",
        rotary.interleaved_as_well,
        "an interleaved fused rotary embedding needs Transformer Engine 2.3",
        ("f4ca892d9e9f",),
    ),
    Replacement(
        f"{_CORE}.datasets.utils",
        "compile_helpers",
        helpers.compile_helpers,
        "its Makefile needs pybind11, and uses the python3-config of the first Python on PATH",
        ("2e38e77b22c3",),
    ),
    Replacement(
        f"{_CORE}.transformer.moe.moe_utils",
        "te_general_gemm",
        lambda _: None,
        "0.16 leaves the name undefined without Transformer Engine, and routers use it",
        only_if_missing=True,
    ),
    Replacement(
        f"{_CORE}.tensor_parallel",
        "checkpoint",
        recompute.checkpoint_stopping_early,
        "--optimize-recomp-communication-level: its recompute repeats every collective",
        ("5636527b7fe7",),
    ),
    Replacement(
        f"{_CORE}.tensor_parallel.layers",
        "reduce_scatter_to_sequence_parallel_region",
        prefetch.under_recompute,
        "--optimize-recomp-communication-level: overlaps the gather of its gradient with the recompute",
        ("4cc0056a0d1a",),
    ),
    Replacement(
        f"{_CORE}.transformer.transformer_layer",
        "TransformerLayer.forward",
        recompute.checkpoint_in_halves,
        "--optimize-recomp-communication-level 2: checkpoints the halves of a layer separately",
        ("497ccff2d17a", "c591545d39f8"),
    ),
    Replacement(
        "megatron.training.arguments",
        "add_megatron_arguments",
        options.with_options,
        "adds --optimize-recomp-communication-level and other options of AscendSpeed",
        ("8aa4240c52bb",),
        is_optional=True,
    ),
    Replacement(
        "megatron.training.arguments",
        "get_device_arch_version",
        options.without_hardware_queues,
        "below version 10 Megatron requires CUDA_DEVICE_MAX_CONNECTIONS=1, which applies only to CUDA",
        ("2e38e77b22c3",),
        is_optional=True,
    ),
)
