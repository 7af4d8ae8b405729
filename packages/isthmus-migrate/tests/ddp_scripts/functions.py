"""Functions for training and testing, a command line, DataParallel where there are several GPUs."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(12, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return F.log_softmax(self.head(F.relu(self.hidden(x))), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    correct = 0
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        correct += output.argmax(dim=1).eq(target).sum().item()
        if batch_idx % args.log_interval == 0:
            print(
                "Epoch {} [{}/{}] loss {:.8f}".format(
                    epoch, batch_idx * len(data), len(train_loader.dataset), loss.item()
                )
            )
    print(f"accuracy {correct / len(train_loader.dataset):.6f}")


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
    test_loss /= len(test_loader.dataset)
    print(f"test loss {test_loss:.8f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--resume", default="")
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    torch.manual_seed(1)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    x = torch.randn(128, 12)
    y = torch.randint(0, 4, (128,))
    train_kwargs = {"batch_size": args.batch_size, "shuffle": args.shuffle}
    train_loader = DataLoader(TensorDataset(x[:96], y[:96]), **train_kwargs)
    test_loader = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=16)

    model = Net().to(device)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    if torch.cuda.device_count() > 1:
        print("several GPUs")
        model = nn.DataParallel(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

    if not os.path.exists(args.out):
        os.makedirs(args.out)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
        torch.save(model.state_dict(), os.path.join(args.out, "model.pt"))


if __name__ == "__main__":
    main()
