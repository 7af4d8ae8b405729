"""Attention backends, cuDNN flags and TF32 are switched in contexts that must put them back."""

# answer: math only False False True
# answer: restored True
# answer: close True True
# answer: cudnn False True then True False
# answer: tf32 False then True high
# answer: full precision 16777217.0
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 8, 16).cuda() for _ in range(3))
mask = torch.ones(8, 8, dtype=torch.bool, device="cuda").tril()
scores = (q @ k.transpose(-2, -1) / 16**0.5).masked_fill(~mask, float("-inf"))
expected = scores.softmax(-1) @ v

backend = torch.backends.cuda
enabled = (backend.flash_sdp_enabled, backend.mem_efficient_sdp_enabled, backend.math_sdp_enabled)
before = [f() for f in enabled]
with sdpa_kernel(SDPBackend.MATH):
    print("math only", *(f() for f in enabled))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
print("restored", [f() for f in enabled] == before)
print("close", out.is_cuda, torch.allclose(out, expected, atol=1e-2))

torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False
flags = lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic)
with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
    inside = flags()
print("cudnn", *inside, "then", *flags())

torch.backends.cuda.matmul.allow_tf32 = False
first = torch.backends.cuda.matmul.allow_tf32
total = torch.mm(
    torch.ones(1, 2, device="cuda").double(), torch.tensor([[2.0**24], [1.0]], device="cuda").double()
)
torch.set_float32_matmul_precision("high")
print("tf32", first, "then", torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision())
print("full precision", total.item())
