"""Trains models on an NPU and on the CPU and compares them bit for bit; a script for ``isthmus ascend run``.

Prints for each combination of model, precision and optimizer whether its losses and parameters are equal after 20
steps, else their largest difference.
"""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

STEPS = 20
SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
Step = tuple[torch.Tensor, torch.Tensor]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 10)),
    "CNN": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    ),
    "BERT": lambda: BertForMaskedLM(BertConfig(**SMALL)),
    "LLaMA": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2)),
    "Mixtral": lambda: MixtralForCausalLM(
        MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4, output_router_logits=True)
    ),
}


def batches(name: str) -> Iterator[Step]:
    """Yield inputs and targets."""
    random = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        if name in ("MLP", "CNN"):
            shape = (6, 24) if name == "MLP" else (6, 3, 8, 8)
            yield torch.randn(shape, generator=random), torch.randint(10, (6,), generator=random)
        else:
            tokens = torch.randint(67, (2, 19), generator=random)
            yield tokens, tokens


class VendorPolicy(TorchFunctionMode):
    """Dispatch mode that gives operators on the CPU the dtypes of torch_npu's autocast where the CPU's differs."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **(kwargs or {}))
        if (
            function is nn.functional.cross_entropy
        ):  # the softmax in the dtype of the logits, its mean in float32
            return nn.functional.nll_loss(args[0].log_softmax(1).float(), args[1])
        if function in (nn.functional.layer_norm, nn.functional.softmax):
            args = (args[0].float(), *args[1:])
        return function(*args, **(kwargs or {}))


def train(name: str, device: str, bf16: bool, options: dict[str, Any]) -> list[torch.Tensor]:
    """Return the losses and the trained parameters, on the CPU."""
    torch.manual_seed(0)
    model = MODELS[name]().eval() if name == "BERT" else MODELS[name]()
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    found = []
    for inputs, targets in batches(name):
        data, labels = inputs.to(device), targets.to(device)
        policy = VendorPolicy() if device == "cpu" else contextlib.nullcontext()
        with torch.autocast(device, torch.bfloat16, enabled=bf16), policy:
            if name in ("MLP", "CNN"):
                loss = nn.functional.cross_entropy(model(data), labels)
            else:
                loss = model(input_ids=data, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().cpu())
    return [*found, *(each.detach().cpu() for each in model.parameters())]


def main() -> None:
    """Compare the models named on the command line, else all."""
    for name in sys.argv[1:] or MODELS:
        for bf16, options in itertools.product((False, True), ({"foreach": True}, {"fused": True})):
            ours, expected = (train(name, device, bf16, options) for device in ("npu", "cpu"))
            worst = max(float((one - other).abs().max()) for one, other in zip(ours, expected, strict=True))
            said = f"differs by {worst:.1e}" if worst else "equal"
            print(name, "bfloat16" if bf16 else "float32", *options, said, flush=True)


if __name__ == "__main__":
    main()
