"""``torch.cuda.synchronize()`` becomes that of the device's module, which the CPU has too."""

from isthmus_migrate.rules.functions import FunctionRule


class Synchronize(FunctionRule):
    """Waiting for the device."""

    code = "IM112"
    name = "synchronize"
    summary = "waits for the device in use; on the CPU there is nothing to wait for"
    before = "torch.cuda.synchronize()"
    after = "torch.get_device_module(DEVICE).synchronize()"
    words = ("synchronize",)
