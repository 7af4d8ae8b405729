"""Random sizes and parallel degrees, also those that do not divide: back to the same bits, or refused in one line."""

import shutil
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats import formats
from tests.helpers.checkpoints import CONFIGS, check_same, checkpoint, write_random

SIZES = {"tp": 6, "pp": 3, "vpp": 2, "ep": 4, "dp": 8}


class Case(NamedTuple):
    """A model, and the options of the conversions it goes through."""

    config: dict[str, Any]
    dtype: torch.dtype
    routes: list[list[str]]


DENSE = ["llama", "llama-tied", "mistral"]
FITTING = {  # architectures that the format has names for
    "meta": DENSE,
    "internevo": ["internlm2", *DENSE],
    "mindformers": [*DENSE, "qwen2", "mixtral", "deepseek_v3"],
    "mindformers-safetensors": [*DENSE, "qwen2", "mixtral", "deepseek_v2"],
}


def often(common, any_other):
    """Return a strategy for sizes that divide in about two of three cases."""
    return st.one_of(st.sampled_from(common), st.sampled_from(common), any_other)


@st.composite
def configs(draw, names):
    name = draw(often(names, st.sampled_from(sorted(CONFIGS))))
    heads, head = draw(often([4, 8, 12], st.integers(1, 12))), draw(often([2, 4], st.sampled_from([6, 8, 3])))
    vocabulary, layers = draw(often([48, 96], st.integers(1, 70))), draw(often([2, 4], st.integers(1, 4)))
    if name == "gpt2":
        sizes = {
            "n_embd": heads * head,
            "n_head": heads,
            "n_layer": layers,
            "n_inner": draw(st.integers(1, 40)),
        }
        return CONFIGS[name] | sizes | {"vocab_size": vocabulary}
    divisors = [each for each in range(1, heads + 1) if heads % each == 0]
    groups = draw(often(divisors, st.integers(1, 12)))
    sizes = {
        "hidden_size": draw(often([heads * head, 24], st.just(30))),
        "head_dim": head,
        "intermediate_size": draw(often([24, 48], st.integers(1, 48))),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads if name.startswith("deepseek") else groups,
        "vocab_size": vocabulary,
        "tie_word_embeddings": draw(st.booleans()),
    }
    experts = draw(often([4], st.integers(1, 6)))
    for key in {"num_experts", "num_local_experts", "n_routed_experts"} & CONFIGS[name].keys():
        sizes[key] = experts
    if "moe_intermediate_size" in CONFIGS[name]:
        sizes["moe_intermediate_size"] = draw(often([12], st.integers(1, 20)))
    return CONFIGS[name] | sizes


@st.composite
def routes(draw):
    kind = formats()[draw(st.sampled_from(sorted(formats())))]
    words = [kind.name]
    for size in kind.sharded:
        words += [
            f"--{size}",
            str(draw(often([1, 1, 2] if size != "ep" else [1], st.integers(1, SIZES[size])))),
        ]
    if names := draw(st.sampled_from(kind.names)):
        words += ["--names", names]
    if kind.sharded and draw(st.booleans()):
        words += ["--rotary", draw(st.sampled_from(["half", "interleaved"]))]
    if kind.name.startswith("megatron"):
        words += ["--pad-vocabulary", str(draw(st.integers(1, 9)))]
    return words


@st.composite
def cases(draw):
    through = draw(st.lists(routes(), min_size=1, max_size=2))
    names = FITTING.get(through[0][0], sorted(CONFIGS))
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float32, torch.float16]))
    return Case(draw(configs(names)), dtype, through)


def outcome(case, folder):
    """Convert along the routes and back to Hugging Face; return whether it was exact or refused.

    Raises:
        AssertionError: it is neither, or a refusal leaves something behind.
    """
    try:
        model(case.config)
    except CheckpointError as error:
        assert "\n" not in str(error)
        return "refused"
    source = at = write_random(folder / "source", case.config, case.dtype)
    for number, words in enumerate([*case.routes, ["huggingface"]]):
        before = sorted(folder.iterdir())
        result = checkpoint("convert", at, folder / f"target{number}", "--to", *words)
        if result.exit_code:
            assert isinstance(result.exception, SystemExit), (words, result.exception)
            assert result.stderr.count("\n") == 1 and result.stderr.startswith("isthmus: "), result.stderr
            assert sorted(folder.iterdir()) == before, words
            return "refused"
        at = folder / f"target{number}"
        inspected = checkpoint("inspect", at)
        assert inspected.exit_code == 0, (words, inspected.stderr)
    check_same(source, at)
    return "exact"


def test_back_to_the_same_bits_or_refused(request, tmp_path):
    @settings(
        max_examples=500 if request.config.getoption("full") else 10,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(cases())
    def each(case):
        folder = tmp_path / "case"
        folder.mkdir()
        try:
            event(f"{' '.join(words[0] for words in case.routes)}: {outcome(case, folder)}")
        finally:
            shutil.rmtree(folder)

    each()


# Heads, key-value heads, intermediate size and data-parallel ranks; the ranks cut heads, groups and pairs of rows.
CUTS = [
    (40, 40, 864, 16),
    (6, 3, 48, 2),
    (6, 3, 48, 4),
    (16, 8, 96, 16),
    (6, 6, 82, 4),
    (12, 2, 50, 4),
    (9, 3, 33, 6),
]


@pytest.mark.parametrize("sizes", CUTS, ids=str)
@pytest.mark.parametrize("options", ["", "--rotary interleaved", "--tp 3"])
def test_ranks_have_rows_of_the_fused_tensor(tmp_path, sizes, options):
    heads, groups, intermediate, ranks = sizes
    if options == "--tp 3" and (groups % 3 or 2 * intermediate % 3):
        pytest.skip("refused: the heads cannot be split")
    config = CONFIGS["qwen2"] | {
        "hidden_size": 16,
        "head_dim": 2,
        "intermediate_size": intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": 48,
    }
    source = write_random(tmp_path / "source", config)
    names = ["--to", "mindformers-safetensors", "--names", "concatenated"]
    rotary = options.split() if "rotary" in options else []
    assert not checkpoint("convert", source, tmp_path / "whole", *names, *rotary).exit_code
    result = checkpoint("convert", source, tmp_path / "ranks", *names, "--dp", ranks, *options.split())
    assert result.exit_code == 0, result.stderr
    whole = weights_of(tmp_path / "whole", 0)
    tp = 3 if "tp" in options else 1
    slices = [weights_of(tmp_path / "ranks", rank) for rank in range(ranks * tp)]
    for name in (
        "model.layers.0.attention.w_qkv.weight",
        "model.layers.0.attention.w_qkv.bias",
        "model.layers.0.feed_forward.w_gate_hidden.weight",
    ):
        # tensor parallelism splits the rows first, the optimizer's parallelism each part once more, if it divides it
        expected = whole[name].chunk(tp)
        dp = ranks if expected[0].shape[0] % ranks == 0 else 1
        for rank, found in enumerate(slices):
            part = expected[rank % tp].chunk(dp)[rank // tp % dp]
            assert torch.equal(found[name], part), (name, rank)
    assert not checkpoint("convert", tmp_path / "ranks", tmp_path / "back", "--to", "huggingface").exit_code
    check_same(source, tmp_path / "back")


def weights_of(folder, rank):
    from safetensors.torch import load_file

    return load_file(folder / f"rank_{rank}" / f"checkpoint_{rank}.safetensors")
