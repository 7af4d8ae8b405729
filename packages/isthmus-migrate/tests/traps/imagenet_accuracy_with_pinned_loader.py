"""The validation loop of the ImageNet example runs over pinned batches of a custom class and over a moving collate."""

# answer: pinned True False
# answer: accuracy 50.00 75.00 of 4
# answer: collated True
import torch
from torch.utils.data import DataLoader

SCORES = torch.tensor([[5.0, 1, 0], [0, 5, 1], [5, 1, 0], [0, 1, 5]])
DATA = list(zip(SCORES, (0, 1, 1, 0)))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum, self.count = self.sum + value * n, self.count + n
        self.avg = self.sum / self.count


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / target.size(0)) for k in topk]


class Batch:
    def __init__(self, samples):
        self.x, self.y = torch.stack([s[0] for s in samples]), torch.tensor([s[1] for s in samples])

    def pin_memory(self):
        self.x, self.y = self.x.pin_memory(), self.y.pin_memory()
        return self


top1, top2, pinned = AverageMeter(), AverageMeter(), []
for batch in DataLoader(DATA, batch_size=2, collate_fn=Batch, pin_memory=torch.cuda.is_available()):
    pinned.append(batch.x.is_pinned() and batch.y.is_pinned())
    acc1, acc2 = accuracy(batch.x.cuda(0, non_blocking=True), batch.y.cuda(0, non_blocking=True), topk=(1, 2))
    top1.update(acc1.item(), batch.x.size(0)), top2.update(acc2.item(), batch.x.size(0))
print("pinned", all(pinned), SCORES.is_pinned())
print("accuracy %.2f %.2f of %d" % (top1.avg, top2.avg, top1.count))
loader = DataLoader(DATA, batch_size=4, collate_fn=lambda s: (Batch(s).x.to("cuda"), Batch(s).y.cuda()))
print("collated", all(t.is_cuda for pair in loader for t in pair))
