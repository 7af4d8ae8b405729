"""Checks of torch.version, cudart and Triton stand in front of CUDA-only code that has portable fallbacks."""

# answer: padded shape (2, 3)
# answer: product [15.0, 15.0, 15.0]
# answer: doubled [0.0, 2.0, 4.0, 6.0]
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def _double(src, dst, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(dst + i, tl.load(src + i, mask=i < n) * 2, mask=i < n)


def double(x):
    if x.is_cuda and triton is not None and torch.version.cuda is not None:
        try:
            out = torch.empty_like(x)
            _double[(1,)](x, out, x.numel(), BLOCK=16)
            return out
        except Exception:
            pass
    return x + x


def matmul(a, b):
    cuda = torch.version.cuda
    if not torch.version.hip and cuda and int(cuda.split(".")[0]) >= 11 and torch.cuda.cudart():
        return (a @ torch.nn.functional.pad(b, (0, -b.shape[1] % 8)))[:, : b.shape[1]]  # for tensor cores
    return a @ b


a, b = torch.full((2, 5), 3.0, device="cuda"), torch.ones(5, 3, device="cuda")
print("padded shape", tuple(matmul(a, b).shape))
print("product", matmul(a, b)[1].tolist())
print("doubled", double(torch.arange(4.0, device="cuda")).tolist())
