"""``python -m isthmus_triton``, where the command ``isthmus`` is not installed."""

import sys

from isthmus_triton.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
