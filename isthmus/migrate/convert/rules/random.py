"""The generators of the device."""

from __future__ import annotations

from isthmus.migrate.convert.functions import FunctionRule


class Random(FunctionRule):
    """Seeds and states of the random number generators."""

    code = "IM117"
    name = "random"
    summary = "seeds the generators of the accelerator in use"
    before = "torch.cuda.manual_seed_all(0)"
    after = "if torch.accelerator.is_available():\n    torch.get_device_module(DEVICE).manual_seed_all(0)"
    words = ("seed", "rng_state", "default_generators")
