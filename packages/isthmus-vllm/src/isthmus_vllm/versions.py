"""Versions of vLLM: those supported, and what differs between them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

SUPPORTED = ("0.32", "0.33")


def installed() -> str:
    """The installed version of vLLM, such as ``0.33.0+empty``; "" if the package has no metadata."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return ""


def reason_against_installed() -> str:
    """Why the installed version of vLLM cannot be used, with the remedy; "" if it can."""
    found = installed()
    if ".".join(found.split(".")[:2]) in SUPPORTED:
        return ""
    return f"vLLM {found or '(unknown version)'} is not supported; install {' or '.join(SUPPORTED)}"


def applies_float32_adapters() -> bool:
    """Whether LoRA in float32 leaves requests without an adapter as they are; 0.32 gives them the last adapter."""
    return not installed().startswith("0.32.")
