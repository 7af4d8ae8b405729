"""Whether there is an accelerator, and how many devices it has."""

from isthmus.migrate.convert.functions import FunctionRule


class Availability(FunctionRule):
    """Questions about what there is."""

    code = "IM110"
    name = "availability"
    summary = "asks for any accelerator instead of CUDA"
    before = "if torch.cuda.is_available():"
    after = "if torch.accelerator.is_available():"
    words = ("is_available", "device_count", "cuda.init", "is_initialized", "is_built")
