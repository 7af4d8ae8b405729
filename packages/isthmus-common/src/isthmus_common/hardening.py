"""Checks of this process: umask, user, address randomisation."""

import os
from collections.abc import Iterator
from pathlib import Path

from isthmus_common.finding import Finding, ok, warning

_SUBJECT = "permissions"
_ADDR_NO_RANDOMIZE = 0x0040000  # flag of personality(2)


def umask(denied: int = 0o022) -> Iterator[Finding]:
    """Check that the umask denies some permissions."""
    # os.umask() would change it for other threads.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    mask = next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))
    if mask & denied == denied:
        yield ok(_SUBJECT, f"umask {mask:03o}")
        return
    what = "read" if mask & 0o022 == 0o022 else "write"
    text = f"umask {mask:03o}: others can {what} the files that a job makes"
    yield warning(_SUBJECT, text, "`umask 027` (Isthmus's own files always have mode 0640)")


def user() -> Iterator[Finding]:
    """Check that this process does not run as root."""
    if os.geteuid():
        yield ok(_SUBJECT, f"user {os.geteuid()}")
    else:
        text = "running as root: a job can write everywhere"
        yield warning(_SUBJECT, text, "run jobs as a separate user")


def random_addresses(root: Path = Path("/")) -> Iterator[Finding]:
    """Check ASLR of the system (proc(5)) and of this process (personality(2))."""
    value = (root / "proc/sys/kernel/randomize_va_space").read_text(encoding="utf-8").strip()
    if value != "2":
        text = f"addresses are not fully randomised: kernel.randomize_va_space is {value}"
        yield warning("aslr", text, "`sysctl -w kernel.randomize_va_space=2`")
    elif int((root / "proc/self/personality").read_text(encoding="utf-8"), 16) & _ADDR_NO_RANDOMIZE:
        text = "addresses of this process are not randomised"
        yield warning("aslr", text, "start it without `setarch -R` and outside a debugger")
    else:
        yield ok("aslr", "addresses are randomised")
