"""set_default_tensor_type moves every factory call to the GPU until it is set back, but explicit devices win."""

# answer: [True, True, True, True]
# answer: torch.float64
# answer: False
# answer: True
# answer: [False, False]
# answer: torch.float32
import torch


def factories():
    return [torch.zeros(2), torch.Tensor([1, 2]), torch.tensor([1.0]), torch.arange(3.0)]


torch.set_default_tensor_type(
    "torch.cuda.DoubleTensor" if torch.cuda.is_available() else "torch.DoubleTensor"
)
print([t.is_cuda for t in factories()])
print(torch.ones(1).dtype)
print(torch.ones(1, device="cpu").is_cuda)
torch.set_default_tensor_type(torch.cuda.FloatTensor)
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
print(all(t.is_cuda for t in net.state_dict().values()))
torch.set_default_tensor_type(torch.FloatTensor)
print([torch.zeros(2).is_cuda, torch.nn.Linear(1, 1).weight.is_cuda])
print(torch.zeros(1).dtype)
