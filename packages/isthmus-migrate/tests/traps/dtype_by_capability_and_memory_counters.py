"""The compute capability and the card's name choose bf16 or fp16, and memory counters are compared with zero."""

# answer: half precision True True
# answer: sum 12.0 float32
# answer: properties True True
# answer: grew True back True
# answer: peak True True
import torch

FAST_CARDS = ("A100", "H100", "L40", "A10")


def half_dtype():
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) >= (8, 0) and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16


properties = torch.cuda.get_device_properties(0)
fast = any(card in properties.name for card in FAST_CARDS)
dtype = half_dtype()

a, b = torch.full((2, 3), 2.0).cuda(), torch.ones(3, 1).cuda()
with torch.autocast(device_type="cuda", dtype=dtype, enabled=torch.cuda.is_available()):
    product = (a if fast else a.clone()) @ b
    total = product.float().sum()
print("half precision", product.dtype == dtype, product.dtype in (torch.bfloat16, torch.float16))
print("sum", total.item(), str(total.dtype).split(".")[-1])
print(
    "properties",
    properties.total_memory > 0 and properties.multi_processor_count > 0,
    torch.cuda.get_device_name() == properties.name,
)

base = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
x = torch.zeros(1024, 1024, device="cuda")
grown = torch.cuda.memory_allocated() - base
del x
print("grew", grown >= 4 * 1024 * 1024, "back", torch.cuda.memory_allocated() == base)
print("peak", torch.cuda.max_memory_allocated() >= base + grown > 0, torch.cuda.memory_reserved() > 0)
