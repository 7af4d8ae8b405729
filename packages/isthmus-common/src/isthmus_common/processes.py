"""State of other processes of this machine."""

from pathlib import Path

from isthmus_common.text import clean_text


def state(pid: int) -> str:
    """Return the state of a process as a letter of proc(5), such as "T" for a stopped one; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def command_name(pid: int) -> str:
    """Return the name of a process's command; "" if it has ended."""
    try:
        return clean_text(Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n"))
    except OSError:
        return ""
