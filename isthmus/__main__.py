"""``python -m isthmus`` is the ``isthmus`` command."""

from isthmus.cli import main

main()
