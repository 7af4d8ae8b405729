"""Start to watch the health of a process, where ISTHMUS_HEALTH asks for it."""

import atexit
import os
import sys
from pathlib import Path

from isthmus_diagnostics.health.session import Health
from isthmus_diagnostics.options import TABLE

_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"}


def start() -> None:
    """Watch this process until it ends, if it is a rank and not a process that a rank has started."""
    if not _claim():
        return
    timeout = TABLE.integer("health_timeout")
    assert timeout is not None
    atexit.register(Health(Path(TABLE.text("health_dir")), timeout=timeout).start().stop)


def _claim() -> bool:
    """Return whether this process is a rank of its own, and tell those that it starts.

    The variable has the process that is watched, and its ranks as the launcher gave them. A process with a local rank
    has started no ranks of this job; one without may be a launcher.
    """
    if "RANK" not in os.environ and any(Path(each).name in _LAUNCHERS for each in sys.orig_argv[:8]):
        return False
    name = TABLE.variable("health_claim")
    process, _, claimed = os.environ.get(name, "").partition(" ")
    own = " ".join(os.environ.get(each, "-") for each in ("RANK", "LOCAL_RANK"))
    is_descendant = process not in ("", str(os.getpid()))
    if is_descendant and (own == claimed or not claimed.endswith(" -") or own.startswith("- ")):
        return False
    os.environ[name] = f"{os.getpid()} {own}"
    return True
