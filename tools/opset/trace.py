"""Record the operators that training steps call in models.json: ``python -m tools.opset.trace``.

Small configurations of LLaMA, Qwen-MoE, BERT and ResNet (Hugging Face) are trained on the CPU: forward, backward,
clipping, AdamW as a loop, foreach and fused, automatic mixed precision and the gradient scaler. Every ATen call
below autograd is recorded.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tools.repository import CORE

_SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4}  # fmt: skip


class _Recorder(TorchDispatchMode):
    def __init__(self, calls: set[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().startswith("aten::"):
            self.calls.add(func.name())
        return func(*args, **(kwargs or {}))


def _models() -> Iterator[tuple[str, Callable[[], Any], dict[str, torch.Tensor]]]:
    import transformers as hf

    ids = torch.randint(0, 64, (2, 17))
    text = {"input_ids": ids, "labels": ids}
    for attention in ("eager", "sdpa"):
        size: dict[str, Any] = {**_SIZE, "attn_implementation": attention}
        llama = hf.LlamaConfig(**size, num_key_value_heads=2)
        qwen = hf.Qwen2MoeConfig(
            **size, num_key_value_heads=2, moe_intermediate_size=24, shared_expert_intermediate_size=24,
            num_experts=4, num_experts_per_tok=2, output_router_logits=True,
        )  # fmt: skip
        bert = hf.BertConfig(**size, max_position_embeddings=32)
        yield "llama", partial(hf.LlamaForCausalLM, llama), text
        yield "qwen_moe", partial(hf.Qwen2MoeForCausalLM, qwen), text
        yield "bert", partial(hf.BertForMaskedLM, bert), {**text, "attention_mask": torch.ones_like(ids)}
    small: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 5}
    resnet = hf.ResNetConfig(**small)
    images = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([1, 2])}
    yield "resnet", partial(hf.ResNetForImageClassification, resnet), images


def _train(model: Any, batch: dict[str, torch.Tensor]) -> None:
    ways: tuple[dict[str, Any], ...] = ({}, {"foreach": True}, {"fused": True})
    for options in ways:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
        for mixed in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
                loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    scaler.step(optimizer)
    scaler.update()
    loss.item()


def trace() -> dict[str, list[str]]:
    """Return by overload the models that call it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, build, batch in _models():
        calls: set[str] = set()
        with _Recorder(calls):
            model = build()
            model.train()
            _train(model, batch)
        for call in calls:
            found[call].add(name)
    return {call: sorted(found[call]) for call in sorted(found)}


if __name__ == "__main__":
    rows = [f"{json.dumps(call)}: {json.dumps(models)}" for call, models in trace().items()]
    (CORE / "src" / "isthmus" / "opset" / "models.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
