"""``python -m isthmus`` is the ``isthmus`` command."""

from isthmus_common.shell import main

main()
