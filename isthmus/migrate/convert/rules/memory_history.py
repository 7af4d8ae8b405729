"""The history that the allocator records."""

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.source.findings import Severity


class MemoryHistory(FunctionRule):
    """Recording of allocations, and snapshots."""

    code = "IM114"
    name = "memory-history"
    severity = Severity.REVIEW
    summary = "allocations are recorded by the accelerator's allocator if it supports that"
    before = "history = torch.cuda.memory._snapshot()"
    after = (
        "history = torch.get_device_module(DEVICE).memory._snapshot() "
        "if torch.accelerator.is_available() else {}"
    )
    words = ("_record_memory_history", "_snapshot")
