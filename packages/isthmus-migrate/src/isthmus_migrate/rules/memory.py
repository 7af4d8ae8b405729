"""Statistics of the device's memory and its cache."""

from isthmus_migrate.rules.functions import FunctionRule


class Memory(FunctionRule):
    """Memory of the device, in bytes."""

    code = "IM113"
    name = "memory"
    summary = "memory statistics are the accelerator's; 0 without one"
    before = "used = torch.cuda.memory_allocated()"
    after = "used = torch.accelerator.memory_allocated() if torch.accelerator.is_available() else 0"
    words = ("memory", "mem_get_info", "empty_cache")
    positional = True
