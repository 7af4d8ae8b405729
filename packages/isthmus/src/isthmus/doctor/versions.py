"""Check that the installed versions are compatible."""

import platform
import re
from collections.abc import Iterator
from importlib import metadata

import isthmus
from isthmus_common.finding import Finding, fail, ok, run_checks, warning

# Plugins numbered like PyTorch: the first two numbers must be equal.
_LIKE_TORCH = ("torch_npu", "intel_extension_for_pytorch")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<range>[^;]*)(?:;.*extra == \"(?P<extra>\w+)\")?")
_BOUND = re.compile(r"(==|>=|<)\s*([\d.]+)")


def examine() -> Iterator[Finding]:
    """Check Python, Isthmus, the libraries that it adapts, plugins, and requirements of packages."""
    yield ok("python", f"{platform.python_version()} ({platform.machine()}, {platform.system()})")
    yield _isthmus()
    yield from run_checks("versions", _adapted, _plugins)


def _isthmus() -> Finding:
    recorded = installed_version("isthmus")
    if recorded == isthmus.__version__:
        return ok("isthmus", f"{recorded} in {isthmus.__path__[0]}")
    known = f"its installed metadata has version {recorded}" if recorded else "it is not installed"
    text = f"{isthmus.__version__} at {isthmus.__path__[0]}, but {known}"
    return warning("isthmus", text, "install it again")


def _adapted() -> Iterator[Finding]:
    """Check libraries against the versions of Isthmus's extras; torch is reported on its own line."""
    for line in (metadata.requires("isthmus") if installed_version("isthmus") else None) or ():
        found = _REQUIREMENT.match(line)
        if not found or found["extra"] in (None, "dev", "torch"):
            continue
        name, wanted = found["name"], found["range"].strip()
        version = installed_version(name)
        if version and not is_within(version, wanted):
            text = f"{name} {version}; Isthmus was written for {wanted}"
            yield warning("versions", text, f"`pip install '{name}{wanted}'`")


def installed_version(name: str) -> str:
    """Return the version of a distribution, or "" if it is not installed or has none."""
    try:
        return metadata.version(name) or ""
    except (metadata.PackageNotFoundError, KeyError):
        return ""


def is_within(version: str, wanted: str) -> bool:
    """Whether a version is within bounds such as ``">=0.16.1,<0.17"``; only release numbers are compared."""
    here = _release(version)
    for operator, bound in _BOUND.findall(wanted):
        limit = _release(bound)
        width = max(len(here), len(limit))
        left, right = ((*number, *[0] * (width - len(number))) for number in (here, limit))
        if not {"==": left == right, ">=": left >= right, "<": left < right}[operator]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def _plugins() -> Iterator[Finding]:
    torch = installed_version("torch")
    for name in _LIKE_TORCH:
        version = installed_version(name)
        if version and torch and _release(version)[:2] != _release(torch)[:2]:
            wanted = ".".join(map(str, _release(torch)[:2]))
            remedy = f"`pip install '{name}=={wanted}.*'`, or uninstall it"
            yield fail("versions", f"{name} {version} is for another PyTorch than {torch}", remedy)
