"""examples/pretrain_llama.py, run as a user runs it on the chip, and the parts of it that need no chip."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tools.repository import ROOT

EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "pretrain_llama.py"

TINY = [
    *("--hidden-size", "64", "--num-layers", "2", "--num-heads", "4", "--num-kv-heads", "2"),
    *("--vocab-size", "512", "--seq-length", "64", "--micro-batch-size", "2", "--global-batch-size", "4"),
    *("--iterations", "8", "--warmup", "2", "--lr", "5e-3", "--save-interval", "3", "--log-interval", "2"),
    *("--eval-interval", "4", "--eval-samples", "4", "--dropout", "0.1"),
]


def run_script(*flags: str, run_flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus", "run", *run_flags, str(SCRIPT), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # the model is tiny, and ranks share the cores
    umask = os.umask(0o077)
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env=environment
        )
    finally:
        os.umask(umask)


def losses(output: Path) -> dict[int, str]:
    """The exact loss of each iteration; of a repeated one, the last."""
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {record["iteration"]: record["hex"] for record in records if "loss" in record}


# ---- On the chip ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The output of a run of eight iterations, checkpoints after 3, 6 and 8, and what it printed."""
    output = tmp_path_factory.mktemp("runs") / "new" / "llama"
    result = run_script(*TINY, "--output", str(output), "--peak-tflops", "0.5")
    assert result.returncode == 0, result.stderr
    return output, result.stdout


def test_log_line_is_readable_and_its_figures_follow_from_the_shape(trained: tuple[Path, str]) -> None:
    from isthmus_common.training.iteration_lines import parse_megatron

    records = [record for line in trained[1].splitlines() if (record := parse_megatron(line))]
    assert [record.iteration for record in records] == [2, 4, 6, 8]
    # Queries of 64, keys and values of 32 numbers each, a gated feed-forward block of 192; two layers, 512 words.
    weights = 2 * (64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 192) + 64 * 512
    flops = 3 * 4 * 64 * (2 * weights + 2 * 4 * 64 * 64)
    for record in records:
        assert record.consumed_tokens == record.iteration * 4 * 64
        assert record.elapsed_ms and record.tgs and record.tflops is not None and record.mfu is not None
        assert record.tgs == pytest.approx(4 * 64 / record.elapsed_ms * 1000, rel=1e-2)
        expected = flops / record.elapsed_ms * 1000 / 1e12
        assert record.tflops == pytest.approx(expected, abs=0.006)
        assert record.mfu == pytest.approx(expected / 0.5, abs=0.002)


def test_loss_falls_and_is_evaluated(trained: tuple[Path, str]) -> None:
    exact = {step: float.fromhex(loss) for step, loss in losses(trained[0]).items()}
    assert list(exact) == list(range(1, 9))
    assert exact[8] < exact[1] - 0.1
    assert re.findall(r"evaluation at iteration (\d+) ", trained[1]) == ["4", "8"]


def test_files_are_written_with_their_modes(trained: tuple[Path, str]) -> None:
    output = trained[0]
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in output.glob("checkpoint-*")) == [
        f"checkpoint-{iteration:06d}" for iteration in (3, 6, 8)
    ]
    for path in [output.parent, output, *output.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path
        assert path == output or not path.name.startswith("."), path


def test_checkpoint_is_a_model_that_transformers_reads(trained: tuple[Path, str]) -> None:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(trained[0] / "checkpoint-000008")
    assert (model.config.hidden_size, model.config.num_key_value_heads) == (64, 2)
    assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.full
def test_resumed_run_repeats_the_losses_to_the_bit(trained: tuple[Path, str]) -> None:
    """Dropout is on, so the chip's generator is part of what is restored."""
    output = trained[0]
    before = losses(output)
    result = run_script(*TINY, "--output", str(output), "--resume", "3", "--verify-resume")
    assert result.returncode == 0, result.stderr
    assert "resume: iterations 4-8 bit-equal to the earlier run" in result.stdout
    done = re.search(r"done: loss \d\.\d+ at iteration (\d), \d\.\d+ at (\d);", result.stdout)
    assert done and done.groups() == ("4", "8")
    assert losses(output) == before


@pytest.mark.full
def test_verification_fails_where_losses_differ(trained: tuple[Path, str]) -> None:
    flags = [*TINY, "--lr", "2e-3", "--output", str(trained[0]), "--resume", "6", "--exit-iteration", "8"]
    result = run_script(*flags, "--verify-resume")
    assert result.returncode == 2
    assert "--lr was 0.005, now 0.002" in result.stdout
    assert re.search(r"error: resume: \d of iterations 7-8 differ from the earlier run", result.stderr)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "contains an earlier run; add --resume, --overwrite or another --output"),
        (
            ("--resume", "5", "--data", "absent.txt"),
            "no checkpoint of iteration 5 to resume from (available: [3,",
        ),
        (("--resume", "--num-layers", "3"), "written with --num-layers 2, not 3"),
        (("--overwrite", "--data", "absent.txt"), "absent.txt: cannot be read (No such file or directory)"),
    ],
)
@pytest.mark.full
def test_faults_end_in_one_line(trained: tuple[Path, str], flags: tuple[str, ...], message: str) -> None:
    before = losses(trained[0])
    result = run_script(*TINY, "--output", str(trained[0]), *flags)
    assert result.returncode == 2
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in result.stderr
    assert losses(trained[0]) == before


@pytest.mark.full
def test_two_ranks_train_the_same_model(trained: tuple[Path, str], tmp_path: Path) -> None:
    """Without dropout, which is drawn per rank, the order of data and the losses are those of one rank."""
    flags = [*TINY, "--dropout", "0", "--no-bf16", "--iterations", "3"]
    for ranks in (1, 2):
        result = run_script(*flags, "--output", str(tmp_path / str(ranks)), run_flags=("--nproc", str(ranks)))
        assert result.returncode == 0, result.stderr
    one, two = (losses(tmp_path / name) for name in ("1", "2"))
    for step in (1, 2, 3):
        assert float.fromhex(two[step]) == pytest.approx(float.fromhex(one[step]), rel=1e-5)
    assert (tmp_path / "2" / "checkpoint-000003" / "rng-00001.pt").exists()


# ---- Without a chip ------------------------------------------------------------------------------------


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from pretraining import corpus

    return corpus


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "line 1: the file has no text"),
        ("a.txt", b"fine\nna\xefve", "line 2: byte 0xef is not UTF-8"),
        ("a.csv", b"text", "unknown kind of file '.csv'"),
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', "line 3: not JSON"),
        ("a.jsonl", b'{"text": "x"}\n["x"]\n', "line 2: expected an object, found list"),
        ("a.jsonl", b'{"texts": "x"}\n', "line 1: no text under the keys ['texts']"),
        ("a.json", b'[{"instruction": 3}]', "line 1: 'instruction' is of type int, not a string"),
        ("a.jsonl", b'{"text": 5}', "line 1: 'text' is of type int, not a string"),
        ("a.jsonl", b'{"text": "\\ud800"}', "line 1: half of a surrogate pair"),
        ("a.jsonl", b"[" * 100_000, "line 1: not JSON"),
        ("a.json", b'\n{"text": "x"}', "line 2: expected a list of records"),
        ("a.json", b'[\n{"text": "x"},\n{"instruction": "i"}\n]', "line 3: no text under the keys"),
        ("a.json", b'[\n{"text": "x"}\n{"text": "y"}]', "line 3: not JSON"),
        ("a.json", b'[\n{"text": "x"},\n', "line 3: not JSON"),
        ("a.json", b"[]", "line 1: the file has no text"),
        ("a.json", b'[{"text": "x", "a": ' + b"[" * 100_000, "line 1: not JSON"),
        ("a.json", b'[{"instruction": "i", "output": null}]', "line 1: 'output' is of type NoneType"),
    ],
)  # fmt: skip
def test_bad_text_is_named_by_file_and_line(
    corpus: ModuleType, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(corpus.CorpusError) as caught:
        corpus.read_documents(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert message in text
    assert "; " in text.partition(message)[2], "no remedy"
    assert "\n" not in text


def test_folder_as_data(corpus: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(corpus.CorpusError, match=r"cannot be read .Is a directory"):
        corpus.read_documents(tmp_path / "a.txt")


def test_good_text_is_read(corpus: ModuleType, tmp_path: Path) -> None:
    alpaca = {"instruction": "Add.", "input": "1 2", "output": "3"}
    records = [{"text": "one\u2028line"}, alpaca, {**alpaca, "input": ""}, {"text": " "}]
    expected = [
        "one\u2028line",
        "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3",
        "### Instruction:\nAdd.\n\n### Response:\n3",
    ]
    (tmp_path / "a.json").write_text(json.dumps(records, indent=1, ensure_ascii=False))
    lines = "\ufeff" + "\r\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.txt").write_text("whole\nfile\n")
    assert corpus.read_documents(tmp_path / "a.json") == expected
    assert corpus.read_documents(tmp_path / "a.jsonl") == expected
    assert corpus.read_documents(tmp_path / "a.txt") == ["whole\nfile\n"]
    assert sum(map(len, corpus.read_documents(None))) > 300_000


def test_tokenizer_is_cached_and_loses_nothing(corpus: ModuleType, tmp_path: Path) -> None:
    documents = ["Größe 1 → 2\n\ttabs", "plain text, plain text"]
    first = corpus.load_or_train_tokenizer(documents, 300, tmp_path)
    (cached,) = tmp_path.iterdir()
    assert stat.S_IMODE(cached.stat().st_mode) == 0o640
    again = corpus.load_or_train_tokenizer(documents, 300, tmp_path)
    assert again.to_str() == first.to_str()
    tokens = corpus.encode(again, documents)
    assert tokens.dtype == torch.int64
    assert again.decode(tokens.tolist(), skip_special_tokens=False) == "<|endoftext|>".join([*documents, ""])
    cached.write_text("{")
    with pytest.raises(corpus.CorpusError, match=r"not a tokenizer .*; delete the file"):
        corpus.load_or_train_tokenizer(documents, 300, tmp_path)


def test_windows_and_their_split(corpus: ModuleType) -> None:
    train, held_out = corpus.split_windows(torch.arange(101), 10, 0.3, "text")
    assert (len(train), len(held_out)) == (7, 2)
    inputs, targets = train[6]
    assert inputs.tolist() == list(range(60, 70))
    assert targets.tolist() == list(range(61, 71))
    assert held_out[0][0][0] == 71
    assert len(corpus.split_windows(torch.arange(11), 10, 0.0, "text")[1]) == 0


@pytest.mark.parametrize(("tokens", "fraction", "part"), [(10, 0.0, "train"), (100, 0.05, "evaluate")])
def test_too_little_text(corpus: ModuleType, tokens: int, fraction: float, part: str) -> None:
    with pytest.raises(
        corpus.CorpusError, match=f"a.txt: {tokens} tokens are too few to {part} on.*; pass more text"
    ):
        corpus.split_windows(torch.arange(tokens), 10, fraction, "a.txt")


def test_the_journal_survives_a_run_killed_while_writing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from pretraining.journal import Journal

    path = tmp_path / "metrics.jsonl"
    journal = Journal(path, writes=True)
    for step in (1, 2, 3):
        journal.add(step, 1 / step)
    path.write_text(path.read_text()[:-20])
    resumed = Journal(path, writes=True)
    assert resumed.earlier == {1: 1.0, 2: 0.5}
    resumed.add(2, 0.5)
    resumed.add(3, 0.25)
    assert resumed.compare(2, 3) == (True, "iterations 2-2 bit-equal to the earlier run")
    assert Journal(path, writes=False).losses == {1: 1.0, 2: 0.5, 3: 0.25}
    equal, message = Journal(path, writes=False).compare(1, 3)
    assert equal and "iterations 1-3" in message


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import pretrain_llama

    return pretrain_llama


def test_an_earlier_run_is_renamed(script: Any, tmp_path: Path) -> None:
    def write(text: str, *names: str) -> None:
        for name in names:
            path = tmp_path / "run" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def found(folder: str) -> dict[str, str]:
        paths = (path for path in (tmp_path / folder).rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path / folder)): path.read_text() for path in paths}

    for text in ("first", "second"):
        write(text, "metrics.jsonl", "loss.png", "checkpoint-000003/model.safetensors", "tokenizer-1.json")
        script.set_earlier_run_aside(tmp_path / "run")
        kept = found("run.previous")
        assert sorted(kept) == ["checkpoint-000003/model.safetensors", "loss.png", "metrics.jsonl"]
        assert set(kept.values()) == {text}
        assert list(found("run")) == ["tokenizer-1.json"]
    write("third", "metrics.jsonl")
    script.set_earlier_run_aside(tmp_path / "run")
    assert found("run.previous") == kept, "a run without a checkpoint replaced one that has some"
    assert list(found("run")) == ["tokenizer-1.json"]


@pytest.mark.full
def test_interrupt_ends_in_one_line(tmp_path: Path) -> None:
    output = tmp_path / "run"
    command = [sys.executable, "-m", "isthmus", "run", "--quiet", str(SCRIPT), *TINY, "--output", str(output)]
    endless = ("--iterations", "100000", "--eval-interval", "100000")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, *endless, "--save-interval", "1"], **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("checkpoint: "):
                break
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=120)[1]
    assert process.returncode == -signal.SIGINT
    pattern = (
        r"pretrain_llama.py: interrupted at iteration \d+; newest checkpoint: .+; continue with --resume"
    )
    assert re.fullmatch(pattern, errors.splitlines()[-1]), errors


def test_order_of_data_does_not_depend_on_batches_ranks_and_resuming(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(micro_batch: int, first: int, count: int) -> list[int]:
        order = script.sample_order(7, first, argparse.Namespace(micro_batch_size=micro_batch, seed=3))
        return [index for _ in range(count // micro_batch) for index in next(order)]

    whole = taken(2, 0, 28)
    assert taken(4, 0, 28) == whole
    assert taken(2, 12, 16) == whole[12:]
    assert sorted(whole[:7]) == sorted(whole[7:14]) == list(range(7))
    assert whole[:7] != whole[7:14]
    monkeypatch.setattr(script, "WORLD_SIZE", 2)
    ranks = []
    for rank in (0, 1):
        monkeypatch.setattr(script, "RANK", rank)
        ranks.append(taken(2, 0, 14))
    pairs = [ranks[step % 2][step // 2 * 2 : step // 2 * 2 + 2] for step in range(14)]
    assert [index for pair in pairs for index in pair] == whole


def test_learning_rate_warms_up_and_follows_a_cosine(script: Any) -> None:
    args = argparse.Namespace(lr=1.0, min_lr=0.1, warmup=10, iterations=110)
    rates = [script.learning_rate(iteration, args) for iteration in range(1, 111)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert rates[59] == pytest.approx(0.55)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[9:] == sorted(rates[9:], reverse=True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--hidden-size", "100"), "--hidden-size 100 must be a multiple of 2 x --num-heads 4"),
        (("--num-kv-heads", "3"), "--num-heads 4 must be a multiple of --num-kv-heads 3"),
        (("--global-batch-size", "12"), "--global-batch-size 12 must be a multiple of 8"),
        (("--vocab-size", "100"), "--vocab-size 100 must be at least 257"),
        (("--iterations", "0"), "0 is not positive"),
        (("--lr", "nan"), "--lr and --clip-grad must be above 0"),
        (("--warmup", "300"), "--warmup 300 must be at least 0 and below --iterations 300"),
        (("--overwrite", "--resume"), "--overwrite moves away what --resume needs"),
        (("--verify-resume",), "--verify-resume goes with --resume"),
    ],
)
def test_flags_that_contradict_each_other(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["pretrain_llama.py", *flags])
    with pytest.raises(SystemExit) as caught:
        script.parse_args(1)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.full
def test_a_run_of_two_iterations_needs_no_other_flag(tmp_path: Path) -> None:
    result = run_script("--tiny", "--iterations", "2", "--output", str(tmp_path / "run"))
    assert result.returncode == 0, result.stderr
    assert sorted(losses(tmp_path / "run")) == [1, 2]


def test_script_is_an_ordinary_cuda_script() -> None:
    files = [EXAMPLES / "pretrain_llama.py", *(EXAMPLES / "pretraining").rglob("*.py")]
    sources = [path.read_text() for path in files]
    assert not any(re.search(r"isthmus|\bchip\b|privateuse", source, re.IGNORECASE) for source in sources)
    text = "".join(sources)
    for word in ('"cuda"', 'backend="nccl"', "torch.cuda.manual_seed_all", "pin_memory=True", ".cuda()"):
        assert word in text
