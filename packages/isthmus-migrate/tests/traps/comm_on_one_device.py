"""torch.cuda.comm splits, copies and joins tensors over a list of GPU numbers, here the same GPU twice."""

# answer: 1 True True
# answer: [4, 2] [True, True]
# answer: True False
# answer: 15.0
# answer: True
# answer: [1.0, 4.0]
import torch
import torch.cuda.comm as comm

host = torch.arange(6.0)
copies = comm.broadcast(host, devices=[0])
print(len(copies), copies[0].is_cuda, torch.equal(copies[0].cpu(), host))
parts = torch.cuda.comm.scatter(host, devices=[0, 0], chunk_sizes=[4, 2])
print([len(p) for p in parts], [p.is_cuda for p in parts])
joined = comm.gather(parts, dim=0, destination=0)
back = comm.gather(parts, destination=torch.device("cpu"))
print(joined.is_cuda, back.is_cuda)
print(joined.sum().item())
print(torch.equal(back, host))
total = comm.reduce_add([torch.tensor([0.0, 1.0]).cuda(), torch.tensor([1.0, 3.0]).cuda(0)], destination=0)
print(total.tolist() if total.is_cuda else "on the host")
