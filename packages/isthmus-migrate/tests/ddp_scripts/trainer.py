"""A class that holds what training needs."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, train_loader, val_loader, epochs):
        self.model = model.cuda()
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.epochs = epochs
        self.criterion = nn.CrossEntropyLoss().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.best = float("inf")

    def train_epoch(self):
        self.model.train()
        total, count, hits = 0.0, 0, 0
        for inputs, labels in self.train_loader:
            inputs, labels = inputs.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            outputs = self.model(inputs)
            loss = self.criterion(outputs, labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item() * inputs.size(0)
            count += labels.size(0)
            hits += (outputs.argmax(1) == labels).sum().item()
        return total / count, hits / count

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.criterion(self.model(x.cuda()), y.cuda()).item() for x, y in self.val_loader]
        return sum(losses) / len(losses)

    def save(self, path, epoch):
        torch.save(
            {"epoch": epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path
        )

    def fit(self, path):
        for epoch in range(self.epochs):
            loss, accuracy = self.train_epoch()
            validation = self.validate()
            print(f"epoch {epoch} loss {loss:.8f} accuracy {accuracy:.6f} validation {validation:.8f}")
            if validation < self.best:
                self.best = validation
                self.save(path, epoch)


def loaders(batch_size):
    x = torch.randn(160, 8)
    y = (x.sum(dim=1) > 0).long()
    train_set, val_set = TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])
    generator = torch.Generator()
    generator.manual_seed(7)
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle="--shuffle" in sys.argv,
                              drop_last=True, generator=generator)  # fmt: skip
    val_loader = DataLoader(val_set, batch_size=32)
    return train_loader, val_loader


def main():
    torch.manual_seed(3)
    train_loader, val_loader = loaders(batch_size=32)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
    trainer = Trainer(model, train_loader, val_loader, epochs=3)
    trainer.fit(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
