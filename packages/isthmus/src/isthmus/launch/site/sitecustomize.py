"""Runs at the start of every Python process of a job; on PYTHONPATH only inside the job's environment.

It hides itself from the process, runs the sitecustomize that would have run without it, starts the recorder of
`isthmus migrate verify` or `isthmus migrate trace` where one is asked for, and prepares the shim.
"""

import os
import sys


def _run_hidden_sitecustomize(here: str) -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _prepare() -> None:
    steps = []
    try:
        from isthmus import options
        from isthmus_common.options import start

        steps.append(lambda: start("python", options.TABLE.variables()))  # ahead of the shim
        if options.switch("shim"):
            from isthmus.launch import process

            steps.append(process.prepare)
    except ModuleNotFoundError:  # another Python, in which isthmus is not installed
        return
    for step in steps:
        step()


_run_hidden_sitecustomize(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - before pathlib
_prepare()
