"""Exceptions of the device."""

from isthmus_migrate.rules.functions import FunctionRule


class Errors(FunctionRule):
    """Exceptions that PyTorch has for every accelerator."""

    code = "IM126"
    name = "errors"
    summary = "catches the errors of any accelerator"
    before = "except torch.cuda.OutOfMemoryError:"
    after = "except torch.OutOfMemoryError:"
    words = ("OutOfMemoryError", "AcceleratorError")
