"""State of other processes of this machine."""

from pathlib import Path


def state(pid: int) -> str:
    """Return the state of a process as a letter of proc(5), such as "T" for a stopped one; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
