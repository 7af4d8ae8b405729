"""The progress line of ``isthmus run --nproc`` for the log lines of frameworks."""

from __future__ import annotations

import pytest

from isthmus_common.training.iteration_lines import parse_bar, parse_trainer
from isthmus_common.training.model_arguments import ModelArguments
from isthmus_common.training.progress import Progress


def megatron(iteration: int, extra: str = "") -> str:
    return (
        f" iteration {iteration:8d}/     100 | elapsed time per iteration (ms): 500.0 | global batch size:     8 | "
        f"lm loss: 3.412345E+00 |{extra}"
    )


ARGUMENTS = (
    "--seq-length 128 --hidden_size=256 --num-layers 2 --vocab-size 1000 --tensor-model-parallel-size 2"
)


def test_progress_computes_values_missing_in_the_line():
    progress = Progress(ModelArguments.read(["train.py", *ARGUMENTS.split()]), peak_tflops=0.1)
    progress.start(2, [0, 1])
    assert progress.text(0.0, 2, {}) == ""
    assert progress.note_line(1, megatron(1), 0.0) == (True, True)
    # 8 x 128 tokens in 0.5 s on 2 devices; Megatron's formula, with the vocabulary padded to 1024:
    flops = 24 * 3 * 8 * 128 * 2 * 256**2 * (1 + 128 / (6 * 256) + 1024 / (16 * 2 * 256))
    assert progress.throughput.tflops == pytest.approx(flops / 0.5 / 2 / 1e12)
    assert progress.text(1.0, 2, {}) == (
        "iteration 1/100 · loss 3.412 · 500 ms · tgs 1024 · 0.012 TFLOPs · MFU 12% · 2 of 2 ranks"
    )


def test_progress_uses_values_of_the_line():
    progress = Progress(ModelArguments(seq_length=1), peak_tflops=200.0)
    progress.start(1, [0])
    progress.note_line(0, megatron(7, " TFLOPs: 148.25 | tgs (tokens/gpu/second): 353.02"), 0.0)
    assert progress.text(0.0, 1, {}).startswith(
        "iteration 7/100 · loss 3.412 · 500 ms · tgs 353 · 148.2 TFLOPs · MFU 74%"
    )
    progress.note_line(0, " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)", 0.0)
    assert progress.model.vocab_size == 50304
    for line in ("  hidden_size ..................................... 64", "  num_layers ........... None"):
        assert not progress.note_line(0, line, 0.0).is_iteration
    assert (progress.model.hidden_size, progress.model.num_layers) == (64, None)


def test_progress_listens_to_one_of_the_ranks_that_report():
    progress = Progress(ModelArguments())
    progress.start(2, [0, 1])
    assert progress.note_line(1, megatron(1), 0.0).is_new
    assert progress.note_line(0, megatron(1), 0.0).is_new
    assert progress.note_line(1, megatron(2), 0.0) == (True, False)
    assert progress.note_line(0, "something else", 0.0) == (False, False)


def test_progress_of_the_hugging_face_trainer():
    progress = Progress(ModelArguments())
    progress.start(1, [0])
    progress.note_bar(0, "  7%|7         | 7/60 [00:05<00:09,  1.2it/s]")
    assert progress.text(0.0, 1, {}) == "7%|7         | 7/60 [00:05<00:09,  1.2it/s]"
    progress.note_line(0, "{'loss': '4.5', 'grad_norm': '2', 'learning_rate': '1e-4', 'epoch': '0.1'}", 10.0)
    progress.note_bar(0, " 20%|##        | 12/60 [00:05<00:09,  1.2it/s]")
    progress.note_line(0, "{'loss': 3.41, 'grad_norm': 2.0, 'epoch': 0.2}", 15.0)
    assert progress.text(15.0, 1, {}) == "iteration 12/60 · loss 3.41 · 1000 ms · 1 of 1 ranks"
    assert progress.text(15.0, 0, {}) == "iteration 12/60 · loss 3.41 · 1000 ms"
    record = parse_trainer("{'loss': 2.0, 'epoch': 0.5, 'num_input_tokens_seen': 4096}")
    assert record is not None and (record.iteration, record.epoch, record.consumed_tokens) == (0, 0.5, 4096)
    for line in ("{'loss': 'nothing'}", "{'loss'", "{'loss': [1]}", "{'train_loss': 1.0}", "{'loss': 1} x"):
        assert parse_trainer(line) is None
    assert parse_bar("Map: 100%|####| 5/5 [00:01<00:00]") is None


def test_ranks_that_are_late_are_named():
    progress = Progress(ModelArguments())
    progress.start(3, [0, 1, 2])
    for iteration in range(1, 4):
        for rank in range(3):
            progress.note_line(rank, megatron(iteration), 10.0 * iteration)
    progress.note_line(0, megatron(4), 40.0)
    assert progress.late_ranks(59.0) == {}
    assert list(progress.late_ranks(61.0)) == [1, 2]
    progress.note_line(2, megatron(4), 61.0)
    text = progress.text(61.0, 3, progress.late_ranks(61.0))
    assert text.endswith("3 of 3 ranks · rank 1 is late: at iteration 3, others at 4")
    assert "no iteration for 45 s" in progress.text(85.0, 3, {})
