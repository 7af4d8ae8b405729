"""Mixtures of experts by grouped products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.router import fused_topk_router
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from isthmus import ops


def _router(
    scores: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def route(
        weights: torch.Tensor, experts: torch.Tensor, rows: torch.Tensor, logits: torch.Tensor,
        renormalize: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        found, chosen = scores(logits.float()).topk(experts.shape[-1], -1)
        weights.copy_(found / found.sum(-1, keepdim=True) if renormalize else found)
        experts.copy_(chosen)
        return weights, experts

    return route


# Operators of vLLM's compiled library, which is not built.
fused_topk_router.vllm_topk_softmax = _router(lambda logits: logits.softmax(-1))
fused_topk_router.vllm_topk_sigmoid = _router(torch.sigmoid)


@UnquantizedFusedMoEMethod.register_oot(name="UnquantizedFusedMoEMethod")
class ChipMoEMethod(UnquantizedFusedMoEMethod):
    """Experts without quantization: tokens sorted by expert, then two grouped products."""

    is_monolithic = False

    def forward_oot(
        self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor,
        shared_experts: Any = None, shared_experts_input: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Mix the experts of each token.

        Raises:
            NotImplementedError: the experts have biases, or the weights apply to their inputs.
        """
        if self.moe.has_bias or layer.apply_router_weight_on_input:
            raise NotImplementedError(
                "isthmus: experts with biases, or with weights on their inputs, are not supported"
            )
        experts = topk_ids.to(torch.int64)
        gate_up, down = layer.w13_weight, layer.w2_weight
        if layer.expert_map is not None:
            # Pairs whose expert is on another rank get weight 0 here; that rank adds their part.
            experts = layer.expert_map[experts].to(torch.int64)
            topk_weights = topk_weights.masked_fill(experts < 0, 0)
            experts = experts.clamp(min=0)
        rows, weights, order = ops.permute_by_experts(x, experts, topk_weights)
        ones = torch.ones(experts.numel(), dtype=torch.int64, device=x.device)
        sizes = torch.zeros(gate_up.shape[0], dtype=torch.int64, device=x.device)
        sizes.index_add_(0, experts.flatten(), ones)
        hidden = ops.swiglu(ops.grouped_matmul(rows, gate_up, sizes, trans_b=True))
        out = ops.grouped_matmul(hidden, down, sizes, trans_b=True)
        return ops.unpermute(out, order, x.shape, permuted_probs=weights)
