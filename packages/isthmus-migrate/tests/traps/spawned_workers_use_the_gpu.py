"""Spawned processes start afresh and must find the device again, each of them on its own."""

# answer: parent True 2.0
# answer: workers [4.0, 8.0]
# answer: by queue True [1, 2, 3]
import torch
import torch.multiprocessing as mp


def worker(rank, results):
    torch.cuda.set_device(0)
    x = torch.full((4,), rank + 1.0).cuda()
    results[rank] = x.sum().item() if x.is_cuda and torch.cuda.current_device() == 0 else -1.0


def answer(queue, values):
    x = torch.tensor(values, device="cuda")
    queue.put((x.device.type == "cuda", x.add(1).tolist()))


def main():
    parent = torch.ones(2).cuda()
    print("parent", parent.is_cuda, parent.sum().item())

    results = torch.zeros(2).share_memory_()
    mp.spawn(worker, args=(results,), nprocs=2)
    print("workers", results.tolist())

    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=answer, args=(queue, [0, 1, 2]))
    process.start()
    on_gpu, values = queue.get()
    process.join()
    print("by queue", on_gpu, values)


if __name__ == "__main__":
    main()
