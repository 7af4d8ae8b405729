"""Paths in this repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
