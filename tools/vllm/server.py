"""A server of ``vllm serve`` in a process of its own, and clients that load it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil

from tools.vllm.generation import expected
from tools.vllm.models import NEW_TOKENS, PROMPTS


class Server:
    """A running server; ``log`` has what it prints."""

    def __init__(self, model: Path, log: Path, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.model, self.log = model, log
        command = [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(self.port),
            "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "64",
            "--kv-cache-memory-bytes", str(64 << 20), *arguments,
        ]  # fmt: skip
        environment = os.environ | {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for the server to answer.

        Raises:
            RuntimeError: it ended, or did not answer in time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.5)
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()[-4000:]}")

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0] == name)

    def engine(self) -> psutil.Process:
        """The process of the engine."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(each for each in children if "EngineCore" in " ".join(each.cmdline()))

    def addresses(self) -> set[str]:
        """Addresses on which the server listens."""
        connections = psutil.Process(self.process.pid).net_connections("inet")
        return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}

    def kill(self) -> None:
        """End every process of the server at once."""
        if self.process.poll() is None:
            for each in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
                each.kill()
            self.process.wait()


async def stream(
    client: httpx.AsyncClient, model: Path, index: int, tokens: int, abort_after: int | None
) -> list[int]:
    """The token ids of one stream, which the client closes after some of them if asked to."""
    body = {
        "model": str(model), "prompt": PROMPTS[index], "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        "stream": True, "return_token_ids": True,
    }  # fmt: skip
    found: list[int] = []
    async with client.stream("POST", "/v1/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                found += json.loads(line[6:])["choices"][0].get("token_ids") or []
            if abort_after is not None and len(found) >= abort_after:
                break
    return found


async def load(server: Server, seconds: float, streams: int = 60) -> Counter[str]:
    """Keep so many streams open, a third closed in the middle; count those equal to a single run, and the others."""
    wanted = expected(server.model)
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=streams)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:

        async def client_of(number: int) -> None:
            source = random.Random(number)
            while True:
                index, tokens = source.randrange(len(PROMPTS)), source.randrange(16, NEW_TOKENS + 1)
                abort_after = tokens // 2 if number % 3 == 0 else None
                found = await stream(client, server.model, index, tokens, abort_after)
                right = found == wanted[index][: len(found)] and len(found) >= (abort_after or tokens)
                outcomes["different" if not right else "equal" if abort_after is None else "aborted"] += 1
                if time.monotonic() > end:
                    return

        await asyncio.gather(*(client_of(number) for number in range(streams)))
    return outcomes
