"""Run the ``isthmus`` command in an environment without Isthmus options."""

import os
import subprocess

from isthmus.launch.run import Job
from tests.helpers import children
from tests.helpers.free_port import free_port


def isthmus(*arguments, timeout=300, **environment):
    """Run ``isthmus arguments`` with changes to the environment."""
    removed = dict.fromkeys(name for name in os.environ if name.startswith(("ISTHMUS_", "PYTHON")))
    settings = {"ISTHMUS_HOST_MEMORY": "1GiB", "OMP_NUM_THREADS": "1", **environment}
    changes = {name: value if value is None else str(value) for name, value in settings.items()}
    return children.command(*arguments, timeout=timeout, **{**removed, **changes})


def run(*arguments, **environment):
    """Run ``isthmus run arguments``."""
    return isthmus("run", *arguments, **environment)


def run_forked(*program, ranks=1, timeout=300, options=None, **environment):
    """Run a program as ``isthmus run program`` does, in children that have PyTorch imported.

    For tests of what the program computes; those of the command itself start a fresh interpreter.

    Args:
        program: a script, ``-m module`` or ``-c command``, with arguments.
        ranks: number of processes, each on a device of its own.
        timeout: in seconds.
        options: of :class:`isthmus.launch.run.Job`.
        environment: changes to the environment, which has no other Isthmus options.

    Returns:
        The first rank's output; with the first exit status that is not 0, and the error of that rank.
    """
    words = [str(each) for each in program]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    settings = {**kept, "ISTHMUS_HOST_MEMORY": "1GiB", **environment}
    variables = dict.fromkeys(os.environ) | Job(words, environ=settings, **(options or {})).environment()
    processes = []
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "ISTHMUS_HOST_DEVICES": str(ranks)}
    for rank in map(str, range(ranks)):
        own = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            **job,
        }
        one = variables | own if ranks > 1 else variables
        processes.append(children.start_module("isthmus.launch.main", *words, **one))
    printed = children.finish(processes, timeout)
    failed = next((rank for rank, process in enumerate(processes) if process.returncode), 0)
    return subprocess.CompletedProcess(words, processes[failed].returncode, printed[0][0], printed[failed][1])
