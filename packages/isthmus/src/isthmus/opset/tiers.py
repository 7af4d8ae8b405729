"""Tiers: sets of operators sufficient to train a model, from ``tiers.toml``."""

import tomllib
from functools import cache
from pathlib import Path

from isthmus import opset

FILE = Path(__file__).parent / "tiers.toml"


@cache
def tiers() -> dict[str, tuple[str, ...]]:
    """The required operators of each tier, by name."""
    return {name: tuple(tier["operators"]) for name, tier in tomllib.loads(FILE.read_text()).items()}


def tiers_of(name: str) -> list[str]:
    """The tiers of an operator; "core" is PyTorch's core ATen operator set."""
    core = ["core"] if "core" in opset.records()[name]["tags"] else []
    return [tier for tier, operators in tiers().items() if name in operators] + core
