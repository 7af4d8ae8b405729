"""A chip in software: what a maker's package for Isthmus looks like."""

from pathlib import Path


def description() -> str:
    """Path of the file that tells Isthmus where the driver and its operators are."""
    return str(Path(__file__).resolve().parent / "driver.toml")
