"""The history that the allocator records."""

from isthmus_migrate.rules.functions import FunctionRule


class MemoryHistory(FunctionRule):
    """Recording of allocations, and snapshots."""

    code = "IM114"
    name = "memory-history"
    summary = "allocations are recorded by the accelerator's allocator if it supports that"
    before = "history = torch.cuda.memory._snapshot()"
    after = (
        "history = torch.get_device_module(DEVICE).memory._snapshot() "
        "if torch.accelerator.is_available() else {}"
    )
    words = ("_record_memory_history", "_snapshot")
