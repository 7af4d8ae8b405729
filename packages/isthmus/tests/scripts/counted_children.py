"""Uses the device only in child processes, each by an operator of its own."""
# ruff: noqa - written as its author would

import multiprocessing

import torch
import torch.multiprocessing


def compute(rank, name):
    torch.cuda.set_device(0)
    x = torch.ones(1 << 20, device="cuda")
    getattr(torch, name)(x)


class Loaded(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.ones(1, device="cuda").tanh().cpu()


if __name__ == "__main__":
    for method, name in (("spawn", "sin"), ("fork", "cos"), ("forkserver", "exp")):
        torch.multiprocessing.start_processes(compute, args=(name,), nprocs=1, start_method=method)
    print([batch.tolist() for batch in torch.utils.data.DataLoader(Loaded(), num_workers=1)])
    late = multiprocessing.get_context("spawn").Process(target=compute, args=(0, "erf"))
    late.start()  # joined by the interpreter
