"""A loop of Hugging Face accelerate for any number of processes, as `accelerate launch` starts it."""
# ruff: noqa - written as its author would

import argparse
import json
import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("folder")
options = parser.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
rows = 8 // accelerator.num_processes  # rows of a micro-batch: the same rows in total
model = nn.Sequential(nn.Linear(16, 16), Block(), Block(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(64, 16)
training = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=rows)
validation = DataLoader(TensorDataset(x[:21]), batch_size=rows)  # the last batches are not full
model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)

losses, norms = [], []


def epoch():
    for inputs, targets in training:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                if norm is not None:
                    norms.append(float(norm))
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())


epoch()
accelerator.save_state(options.folder)
epoch()
second = losses[8:]
accelerator.load_state(options.folder)
epoch()

with torch.no_grad():
    outputs = torch.cat([accelerator.gather_for_metrics(model(inputs)) for (inputs,) in validation])
report = {
    "type": str(accelerator.distributed_type),
    "device": str(accelerator.device),
    "losses": losses[:16],
    "again": losses[16:] == second,
    "norms": norms,
    "outputs": outputs.flatten().tolist(),
    "parameter": type(next(model.parameters())).__name__,
    "local": sum(getattr(p, "to_local", lambda p=p: p)().numel() for p in model.parameters()),
}
if accelerator.is_main_process:
    print(json.dumps(report), flush=True)
accelerator.end_training()
