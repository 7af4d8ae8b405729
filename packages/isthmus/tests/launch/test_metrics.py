"""isthmus.launch: throughput formulas against published logs, and the lines that frameworks print."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_common.training.iteration_lines import IterationRecord, parse_line
from isthmus_common.training.metrics import ModelShape, flops_per_iteration, mfu, tflops, tgs

LLAMA2_70B = ModelShape(hidden_size=8192, num_layers=80, vocab_size=32000, seq_length=4096)

MODELLINK = (
    " iteration     1665/    5000 | consumed samples:      3409920 | consumed tokens:  13967032320 |"
    " elapsed time per iteration (ms): 23205.2 | learning rate: 7.762E-05 | global batch size:  2048 |"
    " lm loss: 1.993132E+00 | loss scale: 16384.0 | grad norm: 2.486 | actual seqlen:  4096 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 88.256 |"
    " TFLOPs: 148.25 | tgs (tokens/gpu/second): 353.02"
)
INTERNEVO = (
    "tflops=142.97284001343704 step=5597 loss=2.3067 real_tgs=148.33 tgs (tokens/gpu/second)=149.24"
    " tgs/last_tgs_1=149.24 tgs/tgs_all=144.28 tgs/tgs_avg=146.94 tgs/tgs_SMA=145.01 tgs/last_tgs_10=149.1"
    " tgs/last_tgs_50=144.98 lr=4.1912826995234156e-05 loss_scale=2097152.0"
    " grad_norm={'0_default': 3.812955735280569, '1_fp32': 0.0} micro_num=32 num_consumed_tokens=23479713792"
    " inf_nan_skip_batches=0"
)


@pytest.mark.parametrize(
    ("elapsed_ms", "expected_tgs", "expected_tflops"),
    [(23205.2, "353.02", "148.25"), (23112.3, "354.44", "148.84")],
)
def test_published_log_is_reproduced(elapsed_ms: float, expected_tgs: str, expected_tflops: str) -> None:
    """LLaMA-2-70B on 1024 cards, global batch 2048, no recompute counted: both figures of both lines."""
    seconds = elapsed_ms / 1000
    assert f"{tgs(2048 * 4096, seconds, 1024):.2f}" == expected_tgs
    assert f"{tflops(flops_per_iteration(LLAMA2_70B, 2048), seconds, 1024):.2f}" == expected_tflops


def test_mfu() -> None:
    assert mfu(148.25, None) is None
    assert mfu(148.25, 313.0) == pytest.approx(0.4736, abs=1e-4)
    with pytest.raises(ValueError, match="peak_tflops is 0"):
        mfu(1.0, 0)


@pytest.mark.parametrize(("seconds", "cards"), [(0.0, 1), (-1.0, 1), (1.0, 0), (float("nan"), 1)])
def test_rates_refuse_impossible_times_and_cards(seconds: float, cards: int) -> None:
    for rate in (tgs, tflops):
        with pytest.raises(ValueError, match="must be above 0"):
            rate(1e12, seconds, cards)


def test_modellink_line() -> None:
    record = parse_line(MODELLINK)
    assert record is not None
    assert (record.iteration, record.total_iterations, record.elapsed_ms) == (1665, 5000, 23205.2)
    assert (record.tgs, record.tflops, record.loss) == (353.02, 148.25, 1.993132)
    assert (record.consumed_tokens, record.seq_length, record.global_batch_size) == (13967032320, 4096, 2048)
    assert parse_line(MODELLINK + " time (ms)\n") == record


def test_megatron_line_of_today() -> None:
    record = parse_line(
        " [2025-06-01 12:00:00.123456] iteration       10/     100 | consumed samples:          160 |"
        " elapsed time per iteration (ms): 412.5 | throughput per GPU (TFLOP/s/GPU): 401.7 |"
        " learning rate: 1.000000E-04 | global batch size:    16 | lm loss: 9.871234E+00 | loss scale: 1.0 |"
        " grad norm: 1.250 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    assert record == IterationRecord(
        iteration=10,
        total_iterations=100,
        elapsed_ms=412.5,
        tflops=401.7,
        global_batch_size=16,
        loss=9.871234,
    )


def test_internevo_line() -> None:
    prefix = "INFO [record_metrics.py, line 341, in record_current_batch_training_metrics] - pid=293 : "
    record = parse_line(prefix + INTERNEVO + " \n")
    assert record is not None
    assert (record.iteration, record.loss, record.tgs) == (5597, 2.3067, 149.24)
    assert (record.tflops, record.consumed_tokens) == (142.97284001343704, 23479713792)


def test_internevo_line_of_older_versions() -> None:
    """Commas between the pairs, one gradient norm, and no statistics."""
    record = parse_line(
        "tflops=63.3, step=2, loss=11.6, tgs (tokens/gpu/second)=4167.2, lr=1e-07, grad_norm=7.5"
    )
    assert record == IterationRecord(iteration=2, loss=11.6, tflops=63.3, tgs=4167.2)


@pytest.mark.parametrize(
    "line",
    ["", "iteration 3 of 5", "loss=1.0 step=2", " iteration 3/ 5 | lm loss: broken | TFLOPs: 1.0",
     "step=x loss=1 tgs (tokens/gpu/second)=2", "step=1 loss=1 tgs (tokens/gpu/second)={bad}"],
)  # fmt: skip
def test_other_lines_are_not_records(line: str) -> None:
    assert parse_line(line) is None


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    for line in (text, " iteration 1/ 2 | " + text, INTERNEVO[:-1] + text):
        parse_line(line)


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "a={" * 10**6, "iteration 1/" * 10**5, "tgs (tokens/gpu/second)=1 " * 10**5]
)
def test_a_line_of_megabytes_is_read_quickly(text: str) -> None:
    """By a parser that looked for a name at every letter, the first would take an hour."""
    assert parse_line(text) is None


def test_metrics_do_not_import_torch() -> None:
    code = "import sys; import isthmus_common.training.iteration_lines; sys.exit('torch' in sys.modules)"
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": ":".join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
