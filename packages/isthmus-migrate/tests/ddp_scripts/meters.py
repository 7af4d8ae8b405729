"""Meters, accuracy of the first k classes, devices from a string of indices, checkpoints."""

import os
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

GPUS = "0,1,2,3"
gpu_ids = [int(number) for number in GPUS.split(",")]


class AverageMeter:
    """Keeps a number's last value and its mean."""

    def __init__(self, name):
        self.name = name
        self.value = self.mean = self.sum = self.count = 0

    def update(self, value, n=1):
        self.value = value
        self.sum += value * n
        self.count += n
        self.mean = self.sum / self.count


def accuracy(output, target, topk=(1,)):
    """Percentage of samples whose class is among the first k."""
    with torch.no_grad():
        batch_size = target.size(0)
        _, found = output.topk(max(topk), 1, True, True)
        correct = found.t().eq(target.view(1, -1).expand_as(found.t()))
        results = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            results.append(correct_k.mul_(100.0 / batch_size))
        return results


def train(loader, model, criterion, optimizer, epoch):
    losses, top1, top3 = AverageMeter("loss"), AverageMeter("top1"), AverageMeter("top3")
    model.train()
    for i, (inputs, target) in enumerate(loader):
        inputs = inputs.cuda(gpu_ids[0], non_blocking=True)
        target = target.cuda(gpu_ids[0], non_blocking=True)
        output = model(inputs)
        loss = criterion(output, target)
        acc1, acc3 = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), inputs.size(0))
        top1.update(acc1[0], inputs.size(0))
        top3.update(acc3.item(), inputs.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 2 == 0:
            print(f"epoch {epoch}: {losses.name} {losses.value:.6f} ({losses.mean:.6f})")
    print(f"epoch {epoch}: top1 {top1.mean:.6f}, top3 {top3.mean:.6f}")


def validate(loader, model, criterion):
    losses, top1 = AverageMeter("loss"), AverageMeter("top1")
    model.eval()
    with torch.no_grad():
        for inputs, target in loader:
            inputs, target = inputs.cuda(gpu_ids[0]), target.cuda(gpu_ids[0])
            output = model(inputs)
            losses.update(criterion(output, target).item(), inputs.size(0))
            top1.update(accuracy(output, target)[0].item(), inputs.size(0))
    print(f"validation: loss {losses.mean:.6f}, top1 {top1.mean:.6f}")
    return top1.mean


def save(state, folder):
    torch.save(state, os.path.join(folder, "checkpoint.pt"))


def main():
    torch.manual_seed(3)
    x, y = torch.randn(96, 10), torch.randint(0, 5, (96,))
    loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16)
    val_loader = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model, device_ids=gpu_ids)
    model = model.cuda(gpu_ids[0])
    criterion = nn.CrossEntropyLoss().cuda(gpu_ids[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    best = 0.0
    for epoch in range(2):
        train(loader, model, criterion, optimizer, epoch)
        best = max(best, validate(val_loader, model, criterion))
    save({"model": model.state_dict(), "best": best}, sys.argv[1])


if __name__ == "__main__":
    main()
