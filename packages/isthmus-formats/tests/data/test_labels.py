"""Labels of conversations, token by token: those that FastChat and llama_preprocess.py publish."""

import json
import random
import re
from functools import cache
from pathlib import Path

import pytest
import sentencepiece

from isthmus_formats.data import formats, tokenizers
from isthmus_formats.data.packing import Layout
from isthmus_formats.data.records import Turn
from isthmus_formats.data.run import Input
from isthmus_formats.data.samples import IGNORED
from isthmus_formats.data.templates import BUILT_IN, Template, find
from isthmus_formats.data.tokenize import Tokenization, tokenize, trained_mask

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
BEGINNINGS = [
    "1",
    "三",
    "the",
    "-",
    "(",
    "🙂",
    "\n",
    "\n\n",
    " ",
    "  ",
    "é",
    '"',
    "\t",
    "A",
    "1.Eat",
    ": ",
    "$",
]
WORDS = [
    *BEGINNINGS,
    "model",
    "data ",
    "世界",
    "</s>",
    "<s>",
    "<unk>",
    "ASSISTANT",
    "USER:",
    " x",
    "2024",
    ".",
    "!",
]


@pytest.fixture(scope="module", params=[False, True], ids=["", "whitespace pieces"])
def model(request, tmp_path_factory) -> Path:
    """A tokenizer with the settings of LLaMA's."""
    path = tmp_path_factory.mktemp("llama") / "tokenizer.model"
    texts = [
        f"{SYSTEM} USER: the model  ASSISTANT: a  data 1 2 3",
        "一二三世界 模型 1.Eat é 'x' (a) - b",
    ] * 20
    with path.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=stream,
            vocab_size=420,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=request.param,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    return path


def talks(count: int, seed: int, words: list[str]) -> list[list[Turn]]:
    """Return conversations of one to four questions and answers, some of them empty."""
    choose = random.Random(seed)

    def text() -> str:
        return (
            ""
            if choose.random() < 0.06
            else choose.choice(BEGINNINGS) + " ".join(choose.choices(words, k=choose.randint(0, 5)))
        )

    return [
        [Turn(role, text()) for _ in range(choose.randint(1, 4)) for role in ("user", "assistant")]
        for _ in range(count)
    ]


# ---- The published algorithm ---------------------------------------------------------------------------


class Llama:
    """LLaMA's tokenizer in Transformers (slow, legacy) and MindFormers: texts are cut at special tokens."""

    def __init__(self, path: Path) -> None:
        self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def __call__(self, text: str) -> list[int]:
        """Return the tokens, bos first."""
        ids = [1]
        for part in re.split("(<unk>|<s>|</s>)", text):
            special = {"<unk>": [0], "<s>": [1], "</s>": [2]}
            ids += special.get(part) or self._model.encode(part)
        return ids


def prompt(turns: list[Turn]) -> str:
    """Return a conversation with FastChat's separators ADD_COLON_TWO."""
    text = f"{SYSTEM} "
    for turn in turns:
        role, end = ("USER", " ") if turn.role == "user" else ("ASSISTANT", "</s>")
        text += f"{role}: {turn.text}{end}" if turn.text else f"{role}:"
    return text


def masked(ids: list[int], lengths: list[tuple[int, int]], rounds: int) -> list[int] | None:
    """Return labels by the lengths of rounds and of their instructions; None where they do not add up.

    The scripts ignore such a conversation, with a warning or none.
    """
    labels, place = list(ids), 1
    labels[:1] = [IGNORED]
    for length, instruction in lengths:
        labels[place : place + instruction] = [IGNORED] * len(labels[place : place + instruction])
        place += length
    labels[place:] = [IGNORED] * len(labels[place:])
    return labels if len(lengths) == rounds and place == sum(each != 0 for each in ids) else None


def rounds_of(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the rounds, and those up to the first without an instruction with it.

    The scripts drop what follows an empty round, of a text with two </s>; such a conversation is not compared.
    """
    rounds = text.removesuffix("</s>").split("</s>")
    whole = []
    for each in rounds:
        parts = each.split(" ASSISTANT: ")
        if len(parts) != 2:
            break
        whole.append((each, f"{parts[0]} ASSISTANT: "))
    return rounds, whole


def fastchat(llama: Llama, turns: list[Turn]) -> tuple[list[int], list[int] | None]:
    """Return tokens and labels of fastchat/train/train.py: the bos of a round counts for its </s>."""
    text = prompt(turns)
    rounds, whole = rounds_of(text)
    lengths = [(len(llama(each)), len(llama(instruction)) - 2) for each, instruction in whole]
    ids = llama(text)
    return ids, masked(ids, lengths, len(rounds))


def llama_preprocess(llama: Llama, turns: list[Turn]) -> tuple[list[int], list[int] | None]:
    """Return tokens and labels of llama_preprocess.py: each round ends with eos, which the tokenizer adds."""

    def encode(text: str) -> list[int]:
        return [*llama(text), 2]

    rounds, whole = rounds_of(prompt(turns))
    ids = [1]
    for each in rounds:
        ids += encode(each)[1:]
    lengths = [(len(encode(each)) - 1, len(encode(instruction)) - 3) for each, instruction in whole]
    return ids, masked(ids, lengths, len(rounds))


# ---- Comparison ----------------------------------------------------------------------------------------


@cache
def style(path: Path, template: str) -> Template:
    found = tokenizers.load(path)
    return find(template, found.special, list(found.backend.specials), None)


def ours(path: Path, turns: list[Turn], template: str) -> tuple[list[int], list[int]]:
    text, spans = style(path, template).render(turns)
    encoding = tokenizers.load(path).backend.encode([text], places=True)[0]
    mask = trained_mask(encoding, spans)
    return list(encoding.ids), [i if on else IGNORED for i, on in zip(encoding.ids, mask, strict=True)]


def test_vicuna_has_the_tokens_and_labels_of_fastchat_and_llama_preprocess(model):
    llama, compared = Llama(model), 0
    plain = [word for word in WORDS if not word.startswith("<")]
    for turns in [*talks(250, 0, plain), *talks(150, 1, WORDS)]:
        ids, labels = ours(model, turns, "vicuna")
        for reference in (fastchat, llama_preprocess):
            expected_ids, expected_labels = reference(llama, turns)
            if expected_labels is not None:
                assert (ids, labels) == (expected_ids, expected_labels), turns
                compared += 1
        assert ids == fastchat(llama, turns)[0], turns
    assert compared > 450


@pytest.mark.parametrize("answer", BEGINNINGS)
def test_the_piece_before_an_answer_is_trained(answer, model):
    turns = [
        Turn("user", "hi"),
        Turn("assistant", answer),
        Turn("user", "1"),
        Turn("assistant", f"{answer}三"),
    ]
    llama = Llama(model)
    ids, labels = ours(model, turns, "vicuna")
    assert (ids, labels) == fastchat(llama, turns) == llama_preprocess(llama, turns)
    # A tokenizer's own template without {% generation %}.
    own = model.parent / "own.jinja"
    own.write_text(
        f"{{{{ bos_token }}}}{SYSTEM} {{% for m in messages %}}{{{{ m.role | upper + ': ' + m.content }}}}"
        "{{ ' ' if m.role == 'user' else eos_token }}{% endfor %}"
    )
    assert ours(model, turns, str(own)) == (ids, labels)


def test_a_file_of_conversations_has_these_labels(model, tmp_path):
    llama, expected, rows = Llama(model), [], []
    for turns in talks(120, 2, ["model", "世界", "1"]):
        ids, labels = llama_preprocess(llama, turns)
        if labels is None:
            continue
        names = {"user": "human", "assistant": "gpt"}
        rows.append({"conversations": [{"from": names[each.role], "value": each.text} for each in turns]})
        expected.append((ids, labels))
    (tmp_path / "talks.json").write_text(json.dumps(rows))
    task = Tokenization(Input((tmp_path / "talks.json",)), model, "vicuna")
    tokenize(task, tmp_path / "talks.mindrecord", Layout())
    found = [
        (each.ids.tolist(), each.labels().tolist()) for each in formats.read(tmp_path / "talks.mindrecord")
    ]
    assert found == expected
    assert len(found) > 80


# ---- Other templates -----------------------------------------------------------------------------------


def test_alpaca_has_the_labels_of_its_training_script(model):
    """Stanford's train.py: the tokens of the prompt alone are masked, where no token crosses its end."""
    llama, compared = Llama(model), 0
    for answer in BEGINNINGS:
        turns = [Turn("user", "the model 1"), Turn("assistant", answer)]
        question = style(model, "alpaca").render(turns[:1])[0].removeprefix("<s>")
        ids, source = llama(f"{question}{answer}</s>"), llama(question)
        if ids[: len(source)] == source:
            assert ours(model, turns, "alpaca") == (ids, [IGNORED] * len(source) + ids[len(source) :]), answer
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("template", [name for name in BUILT_IN if name != "alpaca"])
@pytest.mark.parametrize("answer", ["1", "三", "🙂", "(a)", "the"])
def test_the_model_is_trained_on_each_token_after_the_prompt(answer, template, model):
    """Text that the model generates after the inference prompt, which ends without a space."""
    prompt_of = {
        "vicuna": "ASSISTANT:",
        "llama-2": "",
        "llama-3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "chatml": "<|im_start|>assistant\n",
    }
    turns = [Turn("user", "hi"), Turn("assistant", answer)]
    before = style(model, template).render(turns[:1])[0] + prompt_of[template]
    start = len(tokenizers.load(model).backend.encode([before], places=False)[0].ids)
    ids, labels = ours(model, turns, template)
    after = 1 if template == "chatml" else 0  # the newline after the end is not trained
    end = len(ids) - after
    assert labels == [IGNORED] * start + ids[start:end] + [IGNORED] * after


def test_a_prompt_that_ends_with_a_space_has_it_not_trained(model):
    own = model.parent / "prompt.jinja"
    own.write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    ids, labels = ours(model, [Turn("user", "hi"), Turn("assistant", "三")], str(own))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model)).id_to_piece
    assert [pieces(each) for each in labels if each != IGNORED] == ["三", "</s>"]
    assert pieces(ids[-3]) == "▁"
