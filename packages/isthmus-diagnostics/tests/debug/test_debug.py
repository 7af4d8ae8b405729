"""Live debugging in one process: watching, comparing, finding, capturing, and clean removal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus_diagnostics import debug
from isthmus_diagnostics.debug import intercept, record, replay
from isthmus_diagnostics.debug.verdict import Limit, judge, ulp_of


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ISTHMUS_DEBUG_FOLDER", str(tmp_path / "debug"))
    yield
    debug.stop_all()
    record.reset()


@contextlib.contextmanager
def planted(name: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """Replace the chip's kernel of an overload; the new one gets the old one as its first argument."""
    former = torch.library.get_kernel(f"aten::{name}", "PrivateUse1")
    library = torch.library.Library("aten", "IMPL")

    def wrong(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel(lambda *a, **k: former.call_boxed(keys, *a, **k), *args, **kwargs)

    library.impl(name, wrong, "PrivateUse1", with_keyset=True)
    try:
        yield
    finally:
        library._destroy()


def last_wrong(call: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    result = call(*args, **kwargs)
    with intercept.hide_calls():
        result[(-1,) * result.dim()] += 0.01
    return result


def tables(*names: str) -> list[str]:
    return [torch._C._dispatch_dump(f"aten::{name}") for name in names]


def test_the_dispatcher_is_unchanged_when_tools_are_off() -> None:
    names = ("mm", "silu", "silu_backward", "add_.Tensor", "add.out", "convolution_overrideable")
    before = tables(*names)
    for tool in (debug.compare, debug.overflow, debug.time):
        with tool("*"):
            assert all("intercept.py" in text for text in tables(*names))
        assert tables(*names) == before and intercept.intercepted_overloads() == []


def test_tools_end_in_any_order() -> None:
    value = torch.ones(4, 4, device="chip")
    before = tables("mm")
    first, second, third = (make("aten::mm").start() for make in (debug.time, debug.compare, debug.overflow))
    first.stop()
    value @ value
    third.stop()
    value @ value
    second.stop()
    assert second.probe.findings.calls == 2 and first.probe.rows() == []
    assert tables("mm") == before


def test_a_tool_may_be_closed_inside_a_call() -> None:
    class Leaves:
        nearest = True

        def around(self, call: Any, proceed: Callable[[], Any]) -> Any:
            intercept.forget(self)
            return proceed()

    value = torch.ones(4, 4, device="chip")
    before = tables("mm")
    intercept.watch(Leaves(), ["aten::mm"])
    assert torch.equal((value @ value).cpu(), torch.full((4, 4), 4.0))
    assert tables("mm") == before


def test_views_and_bare_memory_are_not_watched() -> None:
    names = set(intercept.overloads("*"))
    watched = ("silu_backward", "_fused_adamw_", "add.out", "convolution_overrideable")
    assert {f"aten::{name}" for name in watched} <= names
    assert not {"aten::view", "aten::as_strided", "aten::empty.memory_format", "aten::unfold"} & names
    with pytest.raises(debug.DebugError, match="nosuch: matches no operator with a kernel on the chip"):
        debug.compare("nosuch").start()


def test_watched_calls_return_the_same_results() -> None:
    value = torch.arange(6.0, device="chip").reshape(2, 3)

    def calls() -> list[torch.Tensor]:
        out = torch.empty(0, device="chip")
        return [
            value + 2,
            torch.tensor(1, device="chip") + 2.5,
            torch.tensor(1.0, device="chip", dtype=torch.bfloat16) * 2.5,
            torch.fmod(value, 2),
            torch.where(value > 2, value, 0.5),
            torch.add(value, 1, out=out),
            value.clone().add_(1),
            *torch._foreach_add([value, value], 2.0),
            value[:, torch.tensor([0, 2])],
            value.sum(0, dtype=torch.float64),
            torch.zeros(3, device="chip", dtype=torch.int32),
        ]

    plain = calls()
    with debug.compare("*") as session, debug.time("*"):
        seen = calls()
    assert session.probe.findings.calls >= 10 and not record.has_failed()
    for a, b in zip(plain, seen, strict=True):
        assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("autocast", [False, True])
def test_a_training_step_has_no_false_alarm(autocast: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).to("chip")
    optimizer = torch.optim.AdamW(model.parameters(), fused=autocast)
    ids = torch.randint(0, 64, (2, 16), device="chip")
    with debug.compare("*") as session, debug.overflow("*"):
        for _ in range(2):
            with torch.autocast("chip", torch.bfloat16, enabled=autocast):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    findings = session.probe.findings
    assert not record.has_failed(), findings.rows
    assert findings.calls > 200 and findings.skipped == {}
    assert {"aten::mm", "aten::silu_backward", "aten::_log_softmax_backward_data"} <= set(findings.seen)


def test_compare_names_operator_line_and_element(capsys: pytest.CaptureFixture[str]) -> None:
    value = torch.ones(2, 3, device="chip")
    with planted("silu", last_wrong), debug.compare("aten::silu") as session:
        torch.nn.functional.silu(value)
    assert record.has_failed()
    (row,) = session.probe.findings.rows
    assert row["operator"] == "aten::silu" and row["line"].startswith("test_debug.py:")
    assert row["wrong"][0]["index"] == (1, 2) and row["wrong"][0]["wrong"] == 1
    assert row["wrong"][0]["ulps"] > 1000 and row["inputs"] == {"self": "float32[2, 3]"}
    assert "isthmus: compare: aten::silu (float32[2, 3]) at test_debug.py:" in capsys.readouterr().err
    assert "1 calls of 1 operators judged, 1 failed (aten::silu 1)" in session.summary
    rows = [
        json.loads(line) for line in next(record.folder().glob("compare-*.jsonl")).read_text().splitlines()
    ]
    assert [entry["verdict"] for entry in rows] == ["fail"]


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_large_elements_do_not_mask_small_ones(scale: int) -> None:
    torch.manual_seed(0)
    value = (torch.randn(64, 64) * scale).bfloat16().to("chip")

    def shifted(call: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        with intercept.hide_calls():
            return call(*args).add_(0.01)

    with planted("silu", shifted), debug.compare("aten::silu") as session:
        torch.nn.functional.silu(value)
    assert session.probe.findings.rows[0]["wrong"][0]["wrong"] > 1000
    record.reset()
    with debug.compare("aten::silu") as session:
        torch.nn.functional.silu(value)
    assert session.probe.findings.rows == []


def test_batch_norm_without_statistics_is_judged() -> None:
    value = torch.randn(4, 3, 5, device="chip")
    with debug.compare("*") as session:
        torch.nn.functional.batch_norm(value, None, None, training=True)
    assert session.probe.findings.rows == [] and session.probe.findings.calls >= 1


def test_a_wrong_backward_is_named_by_the_line_of_its_forward() -> None:
    import inspect

    value = torch.ones(2, 3, device="chip", requires_grad=True)
    with planted("silu_backward", last_wrong), debug.compare("*") as session:
        line = inspect.stack()[0].lineno + 1
        hidden = torch.nn.functional.silu(value)
        loss = (hidden.t() * 2).sum()
        loss.backward()
    (row,) = session.probe.findings.rows
    assert row["operator"] == "aten::silu_backward" and row["node"] == "SiluBackward0"
    assert row["line"] == f"test_debug.py:{line}" and row["backward"]


def test_recomputation_is_not_backward() -> None:
    from torch.utils.checkpoint import checkpoint

    value = torch.ones(3, device="chip", requires_grad=True)
    with debug.compare("*") as session:
        checkpoint(torch.exp, value, use_reentrant=False).sum().backward()
    lines = next(record.folder().glob("compare-*.jsonl")).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["line"] != "" for row in rows if row["operator"] == "aten::exp"] == [True, True]
    assert session.probe.findings.failed == {}


def test_compare_sees_a_modified_input_and_a_wrong_dtype() -> None:
    def greedy(call: Callable[..., torch.Tensor], value: torch.Tensor) -> torch.Tensor:
        result = call(value)
        with intercept.hide_calls():
            value.zero_()
        return result

    value = torch.ones(3, device="chip")
    with planted("exp", greedy), debug.compare("aten::exp") as session:
        torch.exp(value)
    assert session.probe.findings.rows[0]["wrong"][0]["reason"] == "input was modified"
    with planted("exp", lambda call, v: call(v.double())), debug.compare("aten::exp") as session:
        torch.exp(value)
    assert "dtype torch.float64, expected torch.float32" in session.probe.findings.rows[0]["text"]


def test_positions_of_equal_values_may_differ() -> None:
    def last(call: Callable[..., torch.Tensor], value: torch.Tensor, dim: int, *others: Any) -> torch.Tensor:
        return call(value.flip(dim), dim, *others).neg().add(value.shape[dim] - 1)

    ties = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], device="chip")
    with planted("argmax", last), debug.compare("aten::argmax") as session:
        assert ties.argmax(1).tolist() == [2, 2]
    assert session.probe.findings.rows == []
    with planted("argmax", lambda call, v, *a: call(v, *a).zero_()), debug.compare("aten::argmax") as session:
        ties.argmax(1)
    assert len(session.probe.findings.rows) == 1


def test_random_operators_are_not_judged() -> None:
    with debug.compare("*") as session:
        torch.rand(3, device="chip")
    assert session.probe.findings.skipped == {"aten::uniform_": "draws random numbers"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, 1.5, 3.0, 1000.0, 0.1], dtype=dtype)
    bits = values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    following = (bits + 1).view(dtype).double()
    assert torch.equal(ulp_of(dtype, values.double()), following - values.double())


def test_verdicts() -> None:
    exact = torch.tensor([1.0, -2.0, 1e30], dtype=torch.float64)
    good = exact.float()
    assert judge("r", good, exact, good, Limit(0))[0] is None
    off = good * (1 + 3e-7)
    assert judge("r", off, exact, good, Limit(1))[0] is not None
    assert judge("r", off, exact, good, Limit(6))[0] is None
    assert judge("r", off, exact, off, Limit(1))[0] is None  # no worse than the CPU
    large = torch.full((3,), 2e30, dtype=torch.float64)
    assert judge("r", off, exact, good, Limit(0, 4), large)[0] is None
    nan = torch.tensor([1.0, float("nan"), 1e30])
    for got, reference in ((nan, exact), (good, nan.double())):
        found = judge("r", got, reference, good, Limit(100))[0]
        if got is nan:
            assert found is not None and found.reason == "NaN or infinity" and found.index == (1,)
    assert judge("r", good[:2], exact, good)[0].reason == "shape [2], expected [3]"
    whole = torch.tensor([1, 2, 3])
    assert judge("r", whole, whole, whole)[0] is None
    assert judge("r", whole + (whole == 2), whole, whole)[0].index == (1,)


def test_overflow_names_the_first_producer(capsys: pytest.CaptureFixture[str]) -> None:
    value = torch.tensor([1.0, -4.0], device="chip")
    with debug.overflow("*") as session:
        bad = (value * 2).log()
        (bad + 1).sum()
    (row,) = session.probe.findings.rows
    assert row["operator"] == "aten::log" and row["nan"] == 1 and "-8..2" in row["inputs"]["self"]
    assert "first producer: aten::log at test_debug.py:" in capsys.readouterr().err


def test_overflow_in_place_and_in_backward() -> None:
    value = torch.tensor([0.0, 1.0], device="chip", requires_grad=True)
    with debug.overflow("*") as session:
        value.sqrt().sum().backward()
        torch.ones(2, device="chip").div_(torch.zeros(2, device="chip"))
    rows = session.probe.findings.rows
    assert [row["operator"] for row in rows] == ["aten::div.Tensor", "aten::div_.Tensor"]
    assert rows[0]["node"] == "SqrtBackward0" and rows[1]["infinite"] == 2


def test_masks_are_not_producers() -> None:
    mask = torch.ones(3, 3, dtype=torch.bool, device="chip").triu(1)
    with debug.overflow("*") as session:
        scores = torch.full((3, 3), float("-inf"), device="chip").triu(1)
        torch.zeros(3, 3, device="chip").masked_fill(mask, float("-inf")).softmax(-1)
        torch.where(mask, float("-inf"), scores)
        torch.empty(3, device="chip").fill_(float("inf"))
    assert session.probe.findings.rows == [] and not record.has_failed()


def test_time_counts_and_leaves_out_other_tools() -> None:
    value = torch.ones(8, 8, device="chip")
    with debug.time("aten::mm") as session, debug.compare("aten::mm"):
        for _ in range(3):
            value @ value
    (row,) = session.probe.rows()
    assert row.operator == "aten::mm" and row.calls == 3 and row.total > 0
    written = json.loads(next(record.folder().glob("time-*.json")).read_text())
    assert written[0]["calls"] == 3


def test_fallback_forces_cpu_copies() -> None:
    value = torch.ones(4, 4, device="chip")
    with debug.fallback("aten::mm") as session:
        value @ value
        before = torch.chip.dispatch_stats()["calls"]["fallback"]
    value @ value
    assert torch.chip.dispatch_stats()["calls"]["fallback"] == before
    assert session.summary.startswith("fallback: aten::mm: 1 calls")


# ---- capture and replay


def test_captured_calls_are_replayed(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with debug.capture("*", tmp_path / "calls", calls=2) as session:
            value = torch.randn(6, 4, device="chip").bfloat16().t()[::2]
            value @ value.t()
            torch.cat([value, value.expand(2, 6)])
            value.clone().mul_(0.5)
            torch.where(value > 0, value, float("-inf"))
            torch.full((3,), float("nan"), device="chip")
    finally:
        os.umask(before)
    assert "capture: " in session.summary
    for path in (tmp_path / "calls").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path
    folders = replay.folders(tmp_path / "calls")
    captured = [replay.read(folder) for folder in folders]
    by_name = {call.name: call for call in captured}
    assert by_name["aten::mm"].arguments["self"].stride() == value.stride()
    assert by_name["aten::mm"].line.startswith("test_debug.py:")
    for call in captured:
        for device in ("chip", "cpu"):
            outcome = replay.replay(call, device, times=2, compare=True)
            if call.random:
                assert outcome.problem == "not judged: draws random numbers"
            else:
                found = (outcome.same, outcome.repeatable, outcome.wrong, outcome.problem)
                assert found == (True, True, (), "")


def test_replay_finds_what_compare_found(tmp_path: Path) -> None:
    with planted("silu", last_wrong), debug.capture("aten::silu", tmp_path):
        torch.nn.functional.silu(torch.ones(4, device="chip"))
    (folder,) = replay.folders(tmp_path)
    captured = replay.read(folder)
    with planted("silu", last_wrong):
        outcome = replay.replay(captured, "chip", 1, True)
    assert outcome.same and replay.line(outcome).startswith("WRONG aten::silu")


def refuse(*_: object) -> None:
    raise replay.reference.NoReference("no CPU kernel")


def alternating(values: list[float]) -> Callable[..., torch.Tensor]:
    """A kernel that adds the next of these values to one element in each call."""
    left = iter(values * 8)

    def kernel(call: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        result = call(*args, **kwargs)
        with intercept.hide_calls():
            result[(-1,) * result.dim()] += next(left)
        return result

    return kernel


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([0.01, 0.02], ["not deterministic", "expected"]),  # wrong in every run
        ([0.0, 0.01], ["not deterministic"]),  # right in the first
        ([2**-23, 0.0], ["not deterministic"]),  # rounding differs
        ([0.01], ["expected"]),
    ],
)
@pytest.mark.parametrize("has_reference", [True, False])
def test_replay_reports_nondeterminism_beside_wrong_results(
    tmp_path: Path,
    errors: list[float],
    words: list[str],
    has_reference: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with debug.capture("aten::silu", tmp_path):
        torch.nn.functional.silu(torch.ones(2, 4, device="chip"))
    (captured,) = (replay.read(folder) for folder in replay.folders(tmp_path))

    if not has_reference:
        monkeypatch.setattr(replay.reference, "compute_expected", refuse)
    with planted("silu", alternating(errors)):
        outcome = replay.replay(captured, "chip", 3, True)
        once = replay.replay(captured, "chip", 1, True)
    line, document = replay.line(outcome), replay.as_json(outcome)
    assert line.startswith("WRONG aten::silu")
    assert [
        word for word in ("not deterministic: two runs gave different bits", "expected") if word in line
    ] == [word + ": two runs gave different bits" * (word == "not deterministic") for word in words]
    assert document["wrong"] and document["deterministic"] is ("not deterministic" not in words)
    assert bool(document["differences"]) is ("expected" in words)
    assert once.is_deterministic


@pytest.mark.parametrize("compare", [False, True])
def test_replay_judges_a_result_that_is_not_the_captured_one(
    tmp_path: Path, compare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted("silu", last_wrong), debug.capture("aten::silu", tmp_path / "wrong"):
        torch.nn.functional.silu(torch.ones(4, device="chip"))
    with debug.capture("aten::silu", tmp_path / "right"):
        torch.nn.functional.silu(torch.ones(4, device="chip"))
    (wrong,) = (replay.read(folder) for folder in replay.folders(tmp_path / "wrong"))
    (right,) = (replay.read(folder) for folder in replay.folders(tmp_path / "right"))
    repaired = replay.replay(wrong, "chip", 1, compare)
    assert (repaired.same, repaired.wrong, repaired.differs) == (False, (), True)
    assert replay.line(repaired).endswith(": right, and differs from the captured result")
    with planted("silu", last_wrong):
        broken = replay.replay(right, "chip", 1, compare)
    assert replay.line(broken).startswith("WRONG aten::silu")
    assert "captured result" not in broken.wrong[0].reason and "captured result" in broken.wrong[1].reason

    monkeypatch.setattr(replay.reference, "compute_expected", refuse)
    unknown = replay.replay(wrong, "chip", 1, compare)
    assert replay.line(unknown).startswith("WRONG aten::silu")
    assert "captured result" in unknown.wrong[0].reason


def test_capture_stops_at_its_limits(tmp_path: Path) -> None:
    value = torch.ones(100, device="chip")
    with debug.capture("aten::exp", tmp_path / "few", calls=2) as session:
        for _ in range(5):
            value.exp()
    assert len(replay.folders(tmp_path / "few")) == 2 and session.probe.left_out == 3
    with debug.capture("aten::exp", tmp_path / "small", nbytes=1000) as session:
        for _ in range(3):
            value.exp()
    assert len(replay.folders(tmp_path / "small")) == 1 and session.probe.left_out == 2


def test_bad_captures_are_refused_in_one_line(tmp_path: Path) -> None:
    with debug.capture("aten::exp", tmp_path):
        torch.ones(100, device="chip").exp()
    (folder,) = replay.folders(tmp_path)
    data, call = folder / "tensors.safetensors", folder / "call.json"
    whole, renamed = data.read_bytes(), call.read_bytes().replace(b'"self"', b'"other"', 1)
    for path, content in (
        (data, whole[:-10]),
        (data, b""),
        (call, b"{}"),
        (call, b"[1"),
        (call, call.read_bytes().replace(b"float32", b"int64")),
        (call, renamed.replace(b'"tensor": "self"', b'"tensor": "x"')),
    ):
        former = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(replay.ReplayError) as caught:
            replay.read(folder)
        assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
        path.write_bytes(former)
    with pytest.raises(replay.ReplayError, match="contains no captured calls"):
        replay.folders(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["compare", "compare:", "nosuch:mm", "compare:mm,overflow:nosuch"])
def test_a_wrong_list_of_tools_starts_nothing(text: str) -> None:
    from isthmus_diagnostics.debug import sessions

    with pytest.raises(debug.DebugError):
        sessions.start_listed(text)
    assert debug.status() == [] and intercept.intercepted_overloads() == []


def test_a_tool_may_be_closed_while_a_thread_writes() -> None:
    """By another thread, and by a signal in the same thread, as `isthmus debug` does."""
    findings = record.Findings("compare")
    before = signal.signal(signal.SIGALRM, lambda *_: findings.close() and None)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    try:
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(lambda: [findings.close() for _ in range(2000)])
            for number in range(4000):
                findings.write({"number": number})
            closing.result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    findings.close()
    (file,) = record.folder_path().iterdir()
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == list(range(4000))
