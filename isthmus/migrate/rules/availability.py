"""Availability of an accelerator, and its number of devices."""

from isthmus.migrate.rules.functions import FunctionRule


class Availability(FunctionRule):
    """Availability of devices."""

    code = "IM110"
    name = "availability"
    summary = "tests for any accelerator instead of CUDA"
    before = "if torch.cuda.is_available():"
    after = "if torch.accelerator.is_available():"
    words = ("is_available", "device_count", "init", "is_built")
