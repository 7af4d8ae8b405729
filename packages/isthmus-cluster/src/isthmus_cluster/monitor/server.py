"""A small HTTP server whose pages are made on request."""

from __future__ import annotations

import http.server
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from isthmus_cluster.errors import ClusterError
from isthmus_cluster.inventory import is_ip

_TIMEOUT_S = 10  # timeout for a client that sends nothing
Page = Callable[[], tuple[str, str]]


@contextmanager
def serve(
    port: int, bind: str, routes: Mapping[str, Page], policy: str = "default-src 'none'"
) -> Iterator[str]:
    """Serve pages during a block; yields the address, such as ``http://127.0.0.1:9400``.

    Args:
        port: 0 for a free one.
        bind: address to listen on.
        routes: by path, a function that returns content type and text; called in a thread for each request.
        policy: Content-Security-Policy of the pages.

    Raises:
        ClusterError: the port cannot be opened.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version, sys_version = "isthmus", ""

        def do_GET(self) -> None:
            if _is_loopback(bind) and not _is_own(self.headers.get("Host", "")):
                self.send_error(403, "use the address or the name of this machine as the host")
                return
            page = routes.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(404)
                return
            kind, text = page()
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def end_headers(self) -> None:
            """Forbid other sites to use any answer, and the page to load anything."""
            for name, value in (
                ("Content-Security-Policy", policy),
                ("X-Content-Type-Options", "nosniff"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Referrer-Policy", "no-referrer"),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        daemon_threads = True

    try:
        server = Server((bind, port), Handler)
    except OSError as error:
        raise ClusterError(f"{bind} port {port}: {error.strerror}; give another --port or --bind") from None
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            yield f"http://{f'[{bind}]' if ':' in bind else bind}:{server.server_port}"
        finally:
            server.shutdown()


def _is_loopback(bind: str) -> bool:
    return bind == "localhost" or (is_ip(bind) and ipaddress.ip_address(bind).is_loopback)


def _is_own(host: str) -> bool:
    """Whether a Host header is an address, or a name of this machine.

    A site whose own name resolves to loopback (DNS rebinding) is thus refused.
    """
    name = re.sub(r":\d*$", "", host).strip("[]").lower()
    return is_ip(name) or name in ("localhost", socket.gethostname().lower())
