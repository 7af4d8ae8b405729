"""``vllm serve``: completions, chat, many streams with aborts, and the end of its processes."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tools.vllm.generation import expected
from tools.vllm.models import PROMPTS
from tools.vllm.server import Server, load

pytestmark = pytest.mark.timeout(1200)
CHAT = [{"role": "user", "content": "the quick brown fox"}]


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(models / "llama", tmp_path_factory.mktemp("server") / "log")
    try:
        made.wait_until_ready(600)
        yield made
    finally:
        made.kill()


def post(server: Server, path: str, **body: object) -> httpx.Response:
    body = {"model": str(server.model), "temperature": 0, "max_tokens": 24} | body
    return httpx.post(f"{server.url}{path}", json=body, timeout=600).raise_for_status()


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.addresses() == {"127.0.0.1"}


def test_completions(server: Server) -> None:
    answer = post(server, "/v1/completions", prompt=PROMPTS, ignore_eos=True, return_token_ids=True).json()
    assert [each["token_ids"] for each in answer["choices"]] == [each[:24] for each in expected(server.model)]
    assert answer["usage"]["completion_tokens"] == 24 * len(PROMPTS)


def test_chat_streams_the_same_text(server: Server) -> None:
    whole = post(server, "/v1/chat/completions", messages=CHAT, ignore_eos=True).json()["choices"][0]
    lines = post(
        server, "/v1/chat/completions", messages=CHAT, ignore_eos=True, stream=True
    ).text.splitlines()
    data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    deltas = [json.loads(each)["choices"][0] for each in data[:-1]]
    assert len(deltas) > 10
    assert "".join(each["delta"].get("content") or "" for each in deltas) == whole["message"]["content"]
    assert deltas[-1]["finish_reason"] == whole["finish_reason"] == "length"


@pytest.mark.parametrize("seconds", [20, pytest.param(300, marks=pytest.mark.full)])
def test_aborted_streams_change_no_other_and_leak_no_block(server: Server, seconds: int) -> None:
    outcomes = asyncio.run(load(server, seconds))
    assert outcomes["different"] == 0
    assert outcomes["equal"] >= 40
    assert outcomes["aborted"] >= 20
    end = time.monotonic() + 30
    while server.metric("vllm:num_requests_running") and time.monotonic() < end:
        time.sleep(0.5)
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("vllm:kv_cache_usage_perc") == 0


def test_sigterm_ends_it_cleanly(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    log = server.log.read_text()
    assert "force killing" not in log
    assert "exited unexpectedly" not in log
    assert "Traceback" not in log


def test_a_killed_engine_is_named_and_the_server_ends(models: Path, tmp_path: Path) -> None:
    made = Server(models / "llama", tmp_path / "log", "--enforce-eager")
    try:
        made.wait_until_ready(600)
        made.engine().kill()
        made.process.wait(10)
    finally:
        made.kill()
    assert "engine core exited unexpectedly" in made.log.read_text()
