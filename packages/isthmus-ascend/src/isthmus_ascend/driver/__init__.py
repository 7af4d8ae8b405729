"""The driver over AscendCL."""

from pathlib import Path


def description() -> Path:
    """Return the path of the driver's description; the entry point of the group ``isthmus.drivers``."""
    return Path(__file__).with_name("driver.toml")
