"""Hooks branch on grad.is_cuda, and a custom function allocates its buffers with device=x.device."""

# answer: forward True [0.0, 2.0]
# answer: gradient [20.0, 60.0]
# answer: host gradient [2.0, 6.0]
# answer: hooks ['gpu', 'host']
# answer: accumulated True
import torch


class ClampedScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        out = torch.empty_like(x, device=x.device).copy_(x * factor)
        ctx.factor = torch.tensor(factor, device=x.get_device() if x.is_cuda else "cpu")
        return out.clamp_(min=0)

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad, device=ctx.factor.device).add_(grad * ctx.factor), None


hooks, accumulated = [], []


def hook(grad):
    hooks.append("gpu" if grad.is_cuda else "host")
    return grad * 10 if grad.is_cuda else None


def gradient(device):
    x = torch.tensor([-1.0, 1.0], device=device, requires_grad=True)
    x.register_hook(hook)
    x.register_post_accumulate_grad_hook(lambda p: accumulated.append(p.grad.device == p.device))
    (out := ClampedScale.apply(x, 2.0)).backward(torch.tensor([1.0, 3.0], device=device))
    return out, x.grad


out, grad = gradient("cuda")
print("forward", out.is_cuda, out.tolist())
print("gradient", grad.tolist())
print("host gradient", gradient("cpu")[1].tolist())
print("hooks", hooks)
print("accumulated", accumulated == [True, True])
