"""What every test shares. The environment is set before anything imports torch."""

import os

# Two devices, so that a mistake about the current device shows.
os.environ.setdefault("ISTHMUS_HOST_DEVICES", "2")
os.environ.setdefault("ISTHMUS_HOST_MEMORY", "2GiB")
