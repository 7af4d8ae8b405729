"""A software chip: a sample of a vendor's package for Isthmus."""

from pathlib import Path


def description() -> str:
    """Path of the file that describes the driver and its operator libraries."""
    return str(Path(__file__).resolve().parent / "driver.toml")
