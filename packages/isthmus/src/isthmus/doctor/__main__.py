"""``python -m isthmus.doctor [--json]``: the report when even the packages of the ``isthmus`` command are broken."""

import sys

from isthmus.doctor.report import main

sys.exit(main("--json" in sys.argv[1:]))
