"""The apex-style prefetcher copies and normalises the next batch on a side stream while the last one is used."""

# answer: on gpu True True
# answer: means [0.0, 2.0, 4.0]
# answer: targets [0, 1, 4, 5, 8, 9]
import torch
from torch.utils.data import DataLoader, TensorDataset


class DataPrefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean, self.std = torch.tensor([[[10.0], [20.0]], [[1.0], [2.0]]]).cuda()
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        with torch.cuda.stream(self.stream):
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.cuda(non_blocking=True).float()
            self.next_input = self.next_input.sub_(self.mean).div_(self.std)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        input, target = self.next_input, self.next_target
        if input is not None:
            input.record_stream(torch.cuda.current_stream())
        self.preload()
        return input, target


offset = torch.arange(3).repeat_interleave(2).view(6, 1, 1) * 2
images = torch.cat([10 + offset, 20 + 2 * offset], 1).expand(6, 2, 4).contiguous()
labels = torch.tensor([0, 1, 4, 5, 8, 9])
prefetcher = DataPrefetcher(DataLoader(TensorDataset(images, labels), batch_size=2, pin_memory=True))
got = list(iter(prefetcher.next, (None, None)))
print("on gpu", *(all(p[i].is_cuda for p in got) for i in (0, 1)))
print("means", [i.mean().item() for i, _ in got])
print("targets", [t for _, target in got for t in target.tolist()])
