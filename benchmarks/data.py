"""Tokens per second and core of `isthmus data tokenize`, over Hugging Face `datasets.map` on the same file.

Goal: at least as fast. The limit is the tokenizer alone, on texts in memory.
"""

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before anything reads it

import datasets
from harness import interleave, per_call, print_table, ratio, save
from transformers import PreTrainedTokenizerFast

from isthmus_formats.data import formats, tokenizers
from isthmus_formats.data.packing import Layout
from isthmus_formats.data.run import Input
from isthmus_formats.data.templates import BUILT_IN
from isthmus_formats.data.tokenize import Tokenization, tokenize
from isthmus_formats.data.train import train

UNFAIR = (
    "A tokenizer of several threads on one side, or a cached result of datasets: hence one process with one thread "
    "each, CPU time, and a new cache folder in every round. Both sides read JSON lines, apply one template, mask "
    "what the assistant does not say, and write a file: datasets Arrow, Isthmus Megatron's."
)


def write(path: Path, count: int) -> None:
    """Write conversations of four turns from a vocabulary of made-up words."""
    choose = random.Random(0)
    words = [
        "".join(choose.choices("abcdefghijklmnopqrstuvwxyz", k=choose.randint(2, 9))) for _ in range(3000)
    ]
    with path.open("w") as stream:
        for _ in range(count):
            turns = [" ".join(choose.choices(words, k=choose.randint(10, 120))) for _ in range(4)]
            messages = [
                {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)
            ]
            row = {"messages": messages, "text": "\n".join(turns)}
            stream.write(json.dumps(row) + "\n")


def peers(folder: Path, file: Path, path: Path, kind: str) -> dict[str, Callable[[], float]]:
    """Return Isthmus, datasets and the tokenizer alone, for conversations or plain text."""
    theirs = PreTrainedTokenizerFast.from_pretrained(path)
    backend = tokenizers.load(path).backend
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    texts = [row["text"] for row in rows]
    if kind == "messages":
        texts = [theirs.apply_chat_template(row["messages"], tokenize=False) for row in rows]

    def ours() -> None:
        for old in folder.glob("corpus*"):
            old.unlink()
        tokenize(Tokenization(Input((file,), kind), path), folder / "corpus", Layout())

    def batch(given: dict[str, list]) -> dict[str, list]:
        if kind == "text":
            return {"input_ids": theirs(given["text"], add_special_tokens=False)["input_ids"]}
        made = theirs.apply_chat_template(
            given["messages"], return_dict=True, return_assistant_tokens_mask=True, tokenize=True
        )
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        labels = [[i if on else -100 for i, on in zip(ids, mask, strict=True)] for ids, mask in pairs]
        return {"input_ids": made["input_ids"], "labels": labels}

    def mapped() -> None:
        cache = folder / "cache"
        loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(cache))
        loaded.map(batch, batched=True, remove_columns=loaded.column_names)
        shutil.rmtree(cache)

    def alone() -> None:
        for start in range(0, len(texts), 256):
            backend.encode(texts[start : start + 256], places=kind == "messages")

    works = {"ours": ours, "map": mapped, "tokenizer": alone}
    return {name: per_call(work, clock=time.process_time) for name, work in works.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    datasets.disable_progress_bars()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "talks.jsonl"
        write(file, options.rows)
        train(Input((file,), "text"), folder / "tokenizer", "bpe", 8000, [], BUILT_IN["vicuna"])
        for kind in ("messages", "text"):
            timings = interleave(
                peers(folder, file, folder / "tokenizer", kind), rounds=options.rounds, warm_up=1
            )
            tokens = sum(len(sample.ids) for sample in formats.read(folder / "corpus"))
            rows.append(
                {
                    "form": kind,
                    "tokens": tokens,
                    "Mtokens/s/core": tokens / timings["ours"].median / 1e6,
                    "map_Mtokens/s/core": tokens / timings["map"].median / 1e6,
                    "map_over_ours": ratio(timings["map"], timings["ours"]),
                    "share_of_tokenizer": ratio(timings["tokenizer"], timings["ours"]),
                }
            )
            for file_of in folder.glob("corpus*"):
                file_of.unlink()
    print_table(rows)
    print(save("data", rows, unfair=UNFAIR, settings=vars(options)))


if __name__ == "__main__":
    main()
