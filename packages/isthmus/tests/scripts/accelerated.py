"""A loop of Hugging Face accelerate as its users write it: no device is named."""
# ruff: noqa - written as its author would

import argparse
import json

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--precision", default="no")
options = parser.parse_args()

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision=options.precision, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(64, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)


def epoch():
    losses = []
    for inputs, targets in data:
        with accelerator.accumulate(model), accelerator.autocast():
            loss = nn.functional.mse_loss(model(inputs).float(), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


first = epoch()
accelerator.save_state(options.folder)
second = epoch()
accelerator.load_state(options.folder)
again = epoch()
if accelerator.is_main_process:
    print(
        json.dumps(
            {
                "device": str(accelerator.device),
                "processes": accelerator.num_processes,
                "scaler": accelerator.scaler is not None,
                "first": first,
                "second": second,
                "again": again,
            }
        )
    )
accelerator.end_training()
