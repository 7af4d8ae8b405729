"""``python -m isthmus.conformance.mutation``: the same as ``isthmus conform mutate``."""

from __future__ import annotations

import sys

from isthmus.conformance.cli import app

if __name__ == "__main__":
    app(args=["mutate", *sys.argv[1:]], prog_name="isthmus conform")
