"""Whether a thread runs compiled code of the CPU over the chip's memory, where CPU tensors are the chip's."""

import threading


class _State(threading.local):
    is_running = False


state = _State()
