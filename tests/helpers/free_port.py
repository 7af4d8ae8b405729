"""Ports for jobs of tests."""

import socket


def free_port() -> int:
    """A port of this host that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
