"""Replacements for the forward methods of LLaMA-like and BERT modules.

Each has the signature and result dtypes of the original, and calls the original where it does not apply.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.ops.activation import swiglu
from isthmus.ops.dropout_add_norm import dropout_add_layer_norm
from isthmus.ops.norm import add_rms_norm, rms_norm
from isthmus.ops.rotary import rotary_qk

Function = Callable[..., Any]


def norm(original: Function) -> Function:
    """Replacement for ``LlamaRMSNorm.forward``; with a residual it returns (normalized sum, sum)."""

    @functools.wraps(original)
    def forward(self: Any, hidden_states: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        kind = torch.promote_types(hidden_states.dtype, self.weight.dtype)
        if residual is not None:
            if hidden_states.dtype == residual.dtype == kind:
                return add_rms_norm(hidden_states, residual, self.weight, self.variance_epsilon)
            hidden_states = residual + hidden_states
            kind = torch.promote_types(hidden_states.dtype, kind)
        out = rms_norm(hidden_states.to(kind), self.weight, self.variance_epsilon)
        return out if residual is None else (out, hidden_states)

    return forward


def decoder_layer(norm_class: type) -> Callable[[Function], Function]:
    """Replacement for ``LlamaDecoderLayer.forward`` that fuses the first residual addition with its norm.

    Args:
        norm_class: class whose forward is :func:`norm`; layers with another norm use the original forward.
    """

    def make(original: Function) -> Function:
        @functools.wraps(original)
        def forward(
            self: Any,
            hidden_states: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            position_ids: torch.Tensor | None = None,
            past_key_values: Any = None,
            use_cache: bool | None = False,
            position_embeddings: Any = None,
            **others: Any,
        ) -> torch.Tensor:
            others.update(
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                position_embeddings=position_embeddings,
            )
            norm = self.post_attention_layernorm
            if type(norm) is not norm_class:
                return original(self, hidden_states, **others)
            attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **others)
            normed, total = self.post_attention_layernorm(attended, hidden_states)
            return total + self.mlp(normed)

        return forward

    return make


def add_layer_norm(original: Function) -> Function:
    """Replacement for ``BertSelfOutput.forward`` that fuses dropout, sum and layer norm for tensors of one dtype.

    From the same seed, dropout draws another mask than ``torch.nn.Dropout``. Modules with hooks are not fused.
    """

    @functools.wraps(original)
    def forward(self: Any, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
        hidden_states = self.dense(hidden_states)
        dropout, norm = self.dropout, self.LayerNorm
        alike = hidden_states.dtype == input_tensor.dtype == getattr(norm.weight, "dtype", None)
        if not alike or not (_is_plain(dropout, torch.nn.Dropout) and _is_plain(norm, torch.nn.LayerNorm)):
            return norm(dropout(hidden_states) + input_tensor)
        p = dropout.p if dropout.training else 0.0
        out = dropout_add_layer_norm(hidden_states, input_tensor, norm.weight, norm.bias, p, norm.eps)
        assert isinstance(out, torch.Tensor)
        return out

    return forward


def _is_plain(module: torch.nn.Module, kind: type[torch.nn.Module]) -> bool:
    """Whether a module has exactly this class, no hooks and no own ``forward``."""
    hooks = (
        module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    )  # fmt: skip
    return type(module) is kind and not any(hooks) and "forward" not in vars(module)


def gated_mlp(original: Function) -> Function:
    """Replacement for ``LlamaMLP.forward`` with SiLU activation."""

    @functools.wraps(original)
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if self.config.hidden_act not in {"silu", "swish"}:
            return original(self, x)
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))

    return forward


def rotary_embedding(original: Function) -> Function:
    """Replacement for ``apply_rotary_pos_emb``; under autocast results keep the dtype of query and key."""

    @functools.wraps(original)
    def rotate(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        widened = torch.promote_types(q.dtype, cos.dtype) != q.dtype
        if unsqueeze_dim not in (1, 2) or (widened and not torch.is_autocast_enabled(q.device.type)):
            return original(q, k, cos, sin, unsqueeze_dim)
        return rotary_qk(q, k, cos, sin, layout="bhsd" if unsqueeze_dim == 1 else "bshd")

    return rotate
