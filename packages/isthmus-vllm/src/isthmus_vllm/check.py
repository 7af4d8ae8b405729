"""Whether vLLM takes the plugin here: a check of ``isthmus doctor``, and ``isthmus vllm check``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from isthmus_common import children
from isthmus_common.finding import Finding, describe, fail, ok, warning
from isthmus_vllm import versions

_SUBJECT = "vllm"
_INSTALL = "install it as docs/guides/serving.md says"


def examine() -> Iterator[Finding]:
    """Ask vLLM, in a child process, which platform it takes. Without vLLM there is nothing to check."""
    if find_spec("vllm") is None:
        return
    outcome = children.run(f"{__name__}:records")
    last: dict[str, Any] = outcome.records[-1] if outcome.records else {}
    problem = last.get("problem") or outcome.problem
    name = f"vLLM {versions.installed()}"
    if problem:
        yield fail(_SUBJECT, f"{name} cannot be asked for its platform: {problem}", _INSTALL)
    elif last["reason"]:
        text, _, remedy = last["reason"].partition("; ")
        yield warning(_SUBJECT, f"{name} does not use the chip: {text}", remedy)
    elif last["platform"] != "isthmus_vllm.platform.ChipPlatform":
        text = f"{name} uses {last['platform']}, not the chip"
        yield warning(_SUBJECT, text, "uninstall its other platform plugins, and leave VLLM_PLUGINS unset")
    else:
        yield ok(_SUBJECT, f"{name} serves on {last['device']}, attention {last['attention']}")


def records() -> Iterator[dict[str, Any]]:
    """Resolve vLLM's platform as vLLM does."""
    import isthmus_vllm

    try:
        reason = isthmus_vllm.reason_against()
        if reason:
            yield {"reason": reason}
            return
        from vllm.platforms import current_platform
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        platform = type(current_platform)
        device = f"{current_platform.device_type} ({current_platform.get_device_name()})"
        backend = AttentionBackendEnum.CUSTOM.get_path().rsplit(".", 1)[-1]
        yield {
            "reason": "",
            "platform": f"{platform.__module__}.{platform.__qualname__}",
            "device": device,
            "attention": backend,
        }
    except BaseException as error:  # another package's plugin may raise anything
        yield {"problem": describe(error)}
