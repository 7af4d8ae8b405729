"""A DeepSpeed script as its author would write it: trains a tiny language model once for each configuration.

``deepspeed_training.py FOLDER CONFIGURATION...``, each the stage of ZeRO and further words: ``3 bf16 offload``; or
``plain`` for PyTorch alone. The last line that rank 0 prints is JSON: configuration -> {"losses": mean loss of each
step over the ranks, "again": those after loading the checkpoint of half-way, "norms", "device", "optimizer"}.
"""

import json
import os
import sys
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, WIDTH, LENGTH, BATCH, STEPS, ACCUMULATED = 64, 32, 16, 4, 4, 2
LEARNING_RATE, WEIGHT_DECAY, LARGEST_NORM = 1e-2, 0.1, 0.5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def configuration(words: list[str]) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": int(words[0]),
        "reduce_bucket_size": 8192,
        "stage3_param_persistence_threshold": 0,
    }
    if "offload" in words:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    adam = {"lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY, "torch_adam": "torch" in words}
    return {
        "train_micro_batch_size_per_gpu": BATCH // dist.get_world_size(),
        "gradient_accumulation_steps": ACCUMULATED,
        "gradient_clipping": LARGEST_NORM,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": adam},
        "bf16": {"enabled": "bf16" in words},
        "fp16": {"enabled": "fp16" in words, "initial_scale_power": 10},
    }


def device() -> str:
    return "cuda" if torch.cuda.is_available() else get_accelerator().current_device_name()


def batch(step: int) -> Tensor:
    """Return this rank's part of a micro-batch's tokens; all parts together do not depend on the number of ranks."""
    generator = torch.Generator().manual_seed(step)
    first = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    tokens = (first + torch.arange(LENGTH + 1) * 3) % VOCABULARY
    return tokens.chunk(dist.get_world_size())[dist.get_rank()].to(device())


def train(engine: Any, steps: range) -> tuple[list[float], list[float]]:
    losses, norms = [], []
    for step in steps:
        mean = torch.zeros((), device=device())
        for part in range(ACCUMULATED):
            loss = engine(batch(step * ACCUMULATED + part))
            engine.backward(loss)
            engine.step()
            mean += loss.detach() / ACCUMULATED
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
        norms.append(float(engine.get_global_grad_norm() or 0))
    return losses, norms


def run(words: list[str], folder: str) -> dict[str, Any]:
    torch.manual_seed(0)
    config = configuration(words)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled="init" in words):
        model = Model()
    engine, optimizer, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    first, norms = train(engine, range(STEPS // 2))
    engine.save_checkpoint(folder, tag="half")
    second, more = train(engine, range(STEPS // 2, STEPS))
    engine.load_checkpoint(folder, tag="half")
    again, _ = train(engine, range(STEPS // 2, STEPS))
    used = getattr(optimizer, "optimizer", optimizer)
    found = {"losses": first + second, "again": first + again, "norms": norms + more}
    engine.destroy()
    return {**found, "device": str(engine.device), "optimizer": type(used).__name__}


def run_plain() -> dict[str, Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Model().to(device()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(STEPS):
        mean = torch.zeros((), device=device())
        for part in range(ACCUMULATED):
            loss = model(batch(step * ACCUMULATED + part)) / ACCUMULATED
            loss.backward()
            mean += loss.detach()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM).item())
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "norms": norms, "device": str(next(model.parameters()).device)}


def main() -> None:
    deepspeed.init_distributed()
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    folder, *configurations = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
    reports = {}
    for each in configurations:
        if each == "plain":
            reports[each] = run_plain()
            continue
        reports[each] = run(each.split(), os.path.join(folder, each.replace(" ", "-")))  # noqa: PTH118
    if dist.get_rank() == 0:
        print(json.dumps(reports), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
