"""Fused operators for large models on any device. Each call takes the fastest implementation that supports it.

from isthmus import ops

y, residual = ops.add_rms_norm(x, residual, weight, eps=1e-6)
print(ops.which("add_rms_norm", x, residual, weight))       # add_rms_norm: cpu (the first that supports chip)
with ops.use("add_rms_norm", "composite"):                  # written in PyTorch's own operators
    ...

How to add an operator; paths begin in ``packages/isthmus`` or its ``src``:

1. Describe it in ``isthmus/opset/families/llm_<name>.py``: schema, dtypes, shape rule, reference and samples.
2. Write ``isthmus/ops/<name>.py``: the composite under ``@operator("<name>")``, its ``torch.autograd.Function`` and
   the public function. Export the function in this file.
3. Optional: a CPU kernel in ``csrc/kernels`` (``cpu.add``), a Triton kernel in ``isthmus/ops/triton/<name>.py``.
4. Test it in ``tests/ops/test_<name>.py`` and run ``make docs``.
"""

from isthmus.ops import npu as _npu
from isthmus.ops import triton as _triton
from isthmus.ops.activation import SwiGLU, swiglu
from isthmus.ops.choice import implementations, use, which
from isthmus.ops.cross_entropy import CrossEntropyLoss, cross_entropy
from isthmus.ops.dropout_add_norm import (
    DropoutAddLayerNorm,
    DropoutAddRMSNorm,
    dropout_add_layer_norm,
    dropout_add_rms_norm,
)
from isthmus.ops.flash_attn import (
    FlashCrossAttention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from isthmus.ops.fusion_attention import FlashSelfAttention, flash_attention, fusion_attention
from isthmus.ops.gradients import clip_grad_norm_, grad_norm, grad_norms
from isthmus.ops.linear_cross_entropy import LinearCrossEntropyLoss, linear_cross_entropy
from isthmus.ops.moe import grouped_matmul, permute, permute_by_experts, unpermute
from isthmus.ops.norm import RMSNorm, add_rms_norm, rms_norm
from isthmus.ops.optimizer import AdamW, adamw_
from isthmus.ops.packed_weights import (
    PackedWeight,
    pack_linear,
    pack_weights,
    packed_linear,
    rows_to_pack,
    unpack_weights,
)
from isthmus.ops.padding import index_first_axis, index_put_first_axis, pad_input, unpad_input
from isthmus.ops.paged_attention import cache_write, paged_attention
from isthmus.ops.patching import patch
from isthmus.ops.rotary import rotary, rotary_qk
from isthmus.ops.rotary_embedding import (
    RotaryEmbedding,
    apply_rotary_emb,
    apply_rotary_emb_kv_,
    apply_rotary_emb_qkv_,
    apply_rotary_pos_emb,
)
from isthmus.ops.softmax import ScaledMaskedSoftmax, scaled_masked_softmax
from isthmus.ops.unpad import pad_seqlen, unpad_gen_attention_mask, unpad_rope, unpad_seqlen, unpad_softmax
from isthmus.ops.unpad_matmul import unpad_strided_batch_matmul

_triton.register()
_npu.register()

__all__ = [
    "implementations", "use", "which",
    "SwiGLU", "swiglu",
    "rotary", "rotary_qk",
    "RotaryEmbedding", "apply_rotary_emb", "apply_rotary_emb_kv_", "apply_rotary_emb_qkv_", "apply_rotary_pos_emb",
    "patch",
    "RMSNorm", "add_rms_norm", "rms_norm",
    "ScaledMaskedSoftmax", "scaled_masked_softmax",
    "CrossEntropyLoss", "cross_entropy",
    "LinearCrossEntropyLoss", "linear_cross_entropy",
    "DropoutAddLayerNorm", "DropoutAddRMSNorm", "dropout_add_layer_norm", "dropout_add_rms_norm",
    "FlashCrossAttention", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func",
    "FlashSelfAttention", "flash_attention", "fusion_attention",
    "cache_write", "paged_attention",
    "clip_grad_norm_", "grad_norm", "grad_norms",
    "AdamW", "adamw_",
    "grouped_matmul", "permute", "permute_by_experts", "unpermute",
    "pad_seqlen", "unpad_gen_attention_mask", "unpad_rope", "unpad_seqlen", "unpad_softmax",
    "unpad_strided_batch_matmul",
    "PackedWeight", "pack_linear", "pack_weights", "packed_linear", "rows_to_pack", "unpack_weights",
    "index_first_axis", "index_put_first_axis", "pad_input", "unpad_input",
]  # fmt: skip
