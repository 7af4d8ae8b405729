"""The ``isthmus`` command: starts one of :mod:`isthmus_common.commands`."""

import sys

from isthmus_common import commands
from isthmus_common.exits import exit_with_reader
from isthmus_common.package_folders import PACKAGES
from isthmus_common.text import NO_TORCH


def main() -> None:
    """Entry point of the command; exits with 0, 1 (something is wrong) or 2 (wrong usage)."""
    arguments = sys.argv[1:]
    try:
        with exit_with_reader():
            entry = commands.installed_commands().get(arguments[0]) if arguments else None
            feature = entry.load() if entry else None
            if feature is not None and hasattr(feature, "main"):
                sys.exit(feature.main(arguments[1:]))
            from isthmus_common.application import app

            app(arguments, prog_name="isthmus")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        command = f"isthmus {' '.join(arguments[:1])}"
        if missing == "torch":
            print(f"{command}: {NO_TORCH}", file=sys.stderr)
            sys.exit(1)
        if missing not in PACKAGES:
            raise
        package = missing.replace("_", "-")
        print(f"{command}: this needs {package}: pip install {package}", file=sys.stderr)
        sys.exit(2)
