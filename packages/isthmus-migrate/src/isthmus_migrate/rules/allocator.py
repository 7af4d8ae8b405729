"""CUDA's allocator."""

from isthmus_migrate.rules.manual_rule import StaysRule


class Allocator(StaysRule):
    """Parts of CUDA's allocator."""

    code = "IM190"
    name = "allocator"
    summary = "CUDA's allocator stays: the accelerator's has its own settings"
    before = "torch.cuda.change_current_allocator(allocator)"
    after = before
    words = ("cuda",)
