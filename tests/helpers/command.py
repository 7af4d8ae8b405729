"""Run the ``isthmus`` command in an environment without Isthmus options."""

import os
import subprocess
import sys


def isthmus(*arguments, timeout=300, **environment):
    """Run ``isthmus arguments`` with changes to the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    settings = {"ISTHMUS_HOST_MEMORY": "1GiB", "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "isthmus", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**kept, **settings},
        check=False,
    )


def run(*arguments, **environment):
    """Run ``isthmus run arguments``."""
    return isthmus("run", *arguments, **environment)
