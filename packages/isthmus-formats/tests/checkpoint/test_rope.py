"""Rotary position embeddings: both forms of config.json, to and from Meta's params.json, in Megatron's arguments."""

import json

import pytest
import torch
from safetensors.torch import load_file

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.megatron_arguments import arguments, options_to_repeat
from isthmus_formats.checkpoint.layout import Layout
from isthmus_formats.checkpoint.rope import Rope, rope
from tests.helpers.checkpoints import (
    CONFIGS,
    check_refused,
    check_same,
    checkpoint,
    convert_checkpoint,
    write_random,
)

SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA3 = {"rope_type": "llama3", **SCALING}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
FORMS = [  # the same embeddings before and since transformers 5
    lambda scaling: {"rope_theta": 5e5, "rope_scaling": scaling},
    lambda scaling: {"rope_parameters": {"rope_theta": 5e5, **(scaling or {"rope_type": "default"})}},
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["rope_type", "type"])
def test_both_forms_are_read(form, kind):
    assert rope(form(None)) == Rope(5e5)
    scaling = {kind: "llama3", **SCALING}
    assert rope(form(scaling)) == Rope(5e5, "llama3", SCALING)
    assert rope(form({kind: "linear", "factor": 2.0})) == Rope(5e5, "linear", {"factor": 2.0})


def test_defaults_are_those_of_transformers():
    assert rope({"model_type": "llama"}).theta == 1e4 and rope({"model_type": "mixtral"}).theta == 1e6
    assert rope({"partial_rotary_factor": 0.5}).partial == 0.5
    config = {"rope_scaling": {"type": "su", "factor": 2.0}, "max_position_embeddings": 64}
    assert rope(config) == Rope(1e4, "longrope", {"factor": 2.0, "original_max_position_embeddings": 64})


@pytest.mark.parametrize(
    "config, said",
    [
        ({"rope_theta": "large"}, "is not a number"),
        ({"rope_scaling": {"type": "linear"}}, "lacks a factor"),
        ({"rope_scaling": "linear"}, "'linear' is not an object"),
        ({"rope_scaling": [2.0, "linear"]}, "[2.0, 'linear'] is not an object"),
        ({"rope_parameters": 2}, "2 is not an object"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ by layer"),
    ],
)
def test_embeddings_that_are_damaged(tmp_path, config, said):
    source = write_random(tmp_path / "source", of(config))
    for kind in "meta", "megatron":
        assert said in check_refused(source, kind)
    convert_checkpoint(source, tmp_path / "dcp", "dcp")


def of(changes, name="llama"):
    return CONFIGS[name] | changes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scaling", [None, LLAMA3])
def test_meta_has_theta_and_scaling(tmp_path, form, scaling):
    source = write_random(tmp_path / "source", of({**form(scaling), "max_position_embeddings": 131072}))
    meta = convert_checkpoint(source, tmp_path / "meta", "meta")
    params = json.loads((meta / "params.json").read_text())
    assert params["rope_theta"] == 5e5 and params.get("use_scaled_rope", False) is bool(scaling)
    for name in "config.json", "isthmus-manifest.json":
        (meta / name).unlink()
    back = convert_checkpoint(meta, tmp_path / "back", "huggingface")
    check_same(source, back)
    config = json.loads((back / "config.json").read_text())
    assert rope(config) == Rope(5e5, "llama3", SCALING) if scaling else Rope(5e5)
    assert config["max_position_embeddings"] == (131072 if scaling else 16384)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "scaling",
    [
        LLAMA3 | {"factor": 32.0},
        LLAMA3 | {"original_max_position_embeddings": 32},
        {"rope_type": "linear", "factor": 2.0},
        {"type": "dynamic", "factor": 2.0},
        YARN,
        {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
    ],
    ids=lambda each: each.get("rope_type", "dynamic"),
)
def test_meta_refuses_what_params_json_cannot_express(tmp_path, form, scaling):
    source = write_random(tmp_path / "source", of(form(scaling)))
    assert "params.json of Meta cannot express rope_theta 500000" in check_refused(source, "meta")


def test_meta_with_two_configurations_that_disagree(tmp_path):
    meta = convert_checkpoint(write_random(tmp_path / "source", CONFIGS["llama"]), tmp_path / "meta", "meta")
    params = json.loads((meta / "params.json").read_text())
    (meta / "params.json").write_text(json.dumps(params | {"use_scaled_rope": True}))
    result = checkpoint("inspect", meta)
    assert result.exit_code == 1 and "delete the wrong file" in result.stderr


@pytest.mark.parametrize(
    "params, said",
    [
        ({"rope_theta": "large"}, "params.json: rope_theta 'large' is not a number"),
        ({"rope_theta": [1e4]}, "params.json: rope_theta [10000.0] is not a number"),
        ({"use_scaled_rope": True, "rope_scaling_factor": "eight"}, "rope_scaling_factor 'eight' is not"),
        (
            {"use_scaled_rope": True, "rope_high_freq_factor": {}, "rope_theta": {"a": 1}},
            "rope_theta {'a': 1}",
        ),
        ({"n_layers": "four"}, "num_hidden_layers"),
        ({"dim": None}, "hidden_size null"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_meta_with_damaged_params(tmp_path, params, said, alone):
    meta = convert_checkpoint(write_random(tmp_path / "source", CONFIGS["llama"]), tmp_path / "meta", "meta")
    path = meta / "params.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | params))
    for name in ("config.json", "isthmus-manifest.json") if alone else ():
        (meta / name).unlink()
    result = checkpoint("inspect", meta)
    if alone or "rope_theta" in params or "use_scaled_rope" in params:  # config.json is compared with these
        assert result.exit_code == 1 and said in result.stderr and result.stderr.count("\n") == 1, (
            result.output
        )
    else:
        assert result.exit_code == 0


@pytest.mark.parametrize(
    "size, hidden", [(48, 32), (11008, 4096), (14336, 4096), (28672, 8192), (82, 48), (7, 30)]
)
def test_meta_computes_the_intermediate_size(size, hidden):
    from isthmus_formats.checkpoint.formats.meta import _feed_forward

    found = _feed_forward(hidden, size)
    computed = int(2 * 4 * hidden / 3)  # same formula as FeedForward of Meta's model.py
    if "ffn_dim_multiplier" in found:
        computed = int(found["ffn_dim_multiplier"] * computed)
    multiple = found["multiple_of"]
    assert multiple * ((computed + multiple - 1) // multiple) == size


@pytest.mark.parametrize(
    "route", ["mindformers --rotary interleaved", "megatron --rotary interleaved", "meta"]
)
@pytest.mark.parametrize("changes", [{"head_dim": 3}, {"partial_rotary_factor": 0.5}])
def test_heads_without_rotary_pairs(tmp_path, route, changes):
    source = write_random(tmp_path / "source", of(changes))
    assert "interleaved rotary pairs" in check_refused(source, *route.split())
    half = convert_checkpoint(source, tmp_path / "half", route.split()[0].replace("meta", "dcp"))
    check_same(source, convert_checkpoint(half, tmp_path / "back", "huggingface"))


def saved(changes, name="llama", **layout):
    of_name = model(of(changes, name))
    return arguments(of_name, Layout(vocabulary=of_name.vocabulary, **layout), torch.bfloat16)


@pytest.mark.parametrize("form", FORMS)
def test_megatron_has_theta_and_scaling(form):
    plain = saved(form(None))
    assert (plain.rotary_base, plain.rotary_percent, plain.position_embedding_type) == (500000, 1.0, "rope")
    assert not plain.use_rope_scaling and plain.rotary_seq_len_interpolation_factor is None
    scaled = saved(form(LLAMA3))
    assert scaled.use_rope_scaling and scaled.rope_scaling_factor == 8.0
    assert "--use-rope-scaling" in options_to_repeat(scaled)
    linear = saved(form({"rope_type": "linear", "factor": 2.0}))
    assert linear.rotary_seq_len_interpolation_factor == 2
    yarn = saved(form(YARN))
    assert (yarn.position_embedding_type, yarn.use_rotary_position_embeddings) == ("yarn", False)
    assert (yarn.yarn_rotary_scaling_factor, yarn.yarn_original_max_position_embeddings) == (4.0, 32)
    assert saved({"partial_rotary_factor": 0.5}).rotary_percent == 0.5
    assert saved({}, interleaved=True).rotary_interleaved
    for scaling in LLAMA3 | {"low_freq_factor": 2.0}, {"rope_type": "longrope", "factor": 2.0}:
        with pytest.raises(CheckpointError, match="Megatron has no options for rope_theta 500000"):
            saved(form(scaling))


def test_arguments_of_megatron_describe_the_model():
    llama = saved({"rms_norm_eps": 1e-6, "head_dim": 6})
    assert (llama.normalization, llama.norm_epsilon, llama.swiglu) == ("RMSNorm", 1e-6, True)
    assert (llama.kv_channels, llama.num_query_groups, llama.group_query_attention) == (6, 4, True)
    assert (llama.add_bias_linear, llama.add_qkv_bias, llama.qk_layernorm) == (False, False, False)
    assert llama.untie_embeddings_and_output_weights and llama.padded_vocab_size == 90 and llama.bf16
    qwen2, qwen3 = saved({}, "qwen2"), saved({}, "qwen3")
    assert (qwen2.add_bias_linear, qwen2.add_qkv_bias) == (False, True)
    assert qwen3.qk_layernorm and not qwen3.untie_embeddings_and_output_weights
    assert saved({}, "llama-tied-biased").add_bias_linear
    gpt2 = saved({}, "gpt2")
    assert (gpt2.normalization, gpt2.swiglu, gpt2.position_embedding_type) == (
        "LayerNorm",
        False,
        "learned_absolute",
    )
    assert (gpt2.hidden_size, gpt2.ffn_hidden_size, gpt2.kv_channels, gpt2.add_bias_linear) == (
        32,
        128,
        4,
        True,
    )
    mistral = saved({"sliding_window": 9}, "mistral")
    assert mistral.window_size == (8, 0) and "--window-size 8,0" in options_to_repeat(mistral)
    v3 = saved({}, "deepseek_v3", names="grouped")
    assert (v3.moe_router_score_function, v3.moe_router_enable_expert_bias) == ("sigmoid", True)
    assert (v3.moe_layer_freq, v3.moe_shared_expert_intermediate_size, v3.moe_grouped_gemm) == (
        [0, 1, 1, 1],
        32,
        True,
    )
    assert (v3.multi_latent_attention, v3.kv_lora_rank, v3.qk_head_dim, v3.v_head_dim) == (True, 16, 8, 8)
    moe = saved({"norm_topk_prob": True, "num_experts_per_tok": 3}, "qwen3_moe")
    assert (moe.num_experts, moe.moe_ffn_hidden_size, moe.moe_router_topk, moe.moe_router_pre_softmax) == (
        4,
        16,
        3,
        False,
    )


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"attention_bias": True}, "biases of attention.k, attention.o"),
    ],
)
def test_megatron_refuses_what_it_has_no_option_for(tmp_path, changes, said):
    source = write_random(tmp_path / "source", of(changes))
    for kind in "megatron", "megatron-dist":
        assert said in check_refused(source, kind)


@pytest.mark.parametrize("kind", ["megatron", "megatron-dist"])
@pytest.mark.parametrize(
    "changes, said",
    [
        ({"rope_theta": 5e5}, "rotary_base 10000, config.json calls for 500000"),
        ({"rms_norm_eps": 1e-5}, "norm_epsilon 1e-06, config.json calls for 1e-05"),
        ({"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}, "kv_channels 4"),
    ],
)
def test_arguments_of_megatron_that_contradict_config_json(tmp_path, kind, changes, said):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    target = convert_checkpoint(source, tmp_path / "target", kind)
    (tmp_path / "config.json").write_text(json.dumps(of(changes)))
    result = checkpoint("inspect", target, "--config", tmp_path / "config.json")
    assert result.exit_code == 1 and said in result.stderr and "--config" in result.stderr


@pytest.mark.parametrize("kind", ["megatron --tp 2", "megatron-dist"])
def test_rotary_pairs_of_megatron_are_those_of_its_arguments(tmp_path, kind):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    target = convert_checkpoint(source, tmp_path / "target", *kind.split(), "--rotary", "interleaved")
    (target / "isthmus-manifest.json").unlink()
    check_same(source, convert_checkpoint(target, tmp_path / "back", "huggingface"))
    name = "decoder.layers.0.self_attention.linear_qkv.weight"
    if "tp" in kind:
        found = torch.load(target / "release/mp_rank_00/model_optim_rng.pt", weights_only=False)["model"][
            name
        ]
        q = load_file(source / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
        assert torch.equal(found[:4], q[[0, 2, 1, 3]])


def test_formats_of_transformers_have_rotary_halves(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    for kind in "huggingface", "dcp", "deepspeed":
        result = checkpoint("convert", source, tmp_path / "target", "--to", kind, "--rotary", "interleaved")
        assert result.exit_code == 2 and f"{kind} has rotary halves; leave it out" in result.stderr


# Arguments that Megatron-LM's load_args_from_checkpoint reads for a model of this kind.
READ = """
num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups group_query_attention
kv_channels max_position_embeddings position_embedding_type add_position_embedding
use_rotary_position_embeddings rotary_base rotary_percent rotary_interleaved add_bias_linear
add_qkv_bias squared_relu swiglu untie_embeddings_and_output_weights apply_layernorm_1p
normalization apply_query_key_layer_scaling attention_dropout hidden_dropout num_experts
moe_layer_freq moe_ffn_hidden_size moe_router_topk moe_router_pre_softmax moe_grouped_gemm
moe_router_score_function moe_router_enable_expert_bias padded_vocab_size ckpt_format
tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size
""".split()


@pytest.mark.parametrize("kind", ["megatron --pp 2 --ep 2", "megatron-dist"])
def test_every_argument_that_megatron_reads_is_written(tmp_path, kind):
    source = write_random(tmp_path / "source", CONFIGS["mixtral"])
    target = convert_checkpoint(source, tmp_path / "target", *kind.split())
    path = (
        target / "common.pt"
        if "dist" in kind
        else target / "release" / "mp_rank_00_000_000" / "model_optim_rng.pt"
    )
    found = torch.load(path, weights_only=False)["args"]
    assert [name for name in READ if getattr(found, name, None) is None] == []


@pytest.mark.parametrize("form", FORMS)
def test_internevo_has_theta_or_refuses(tmp_path, form):
    source = write_random(
        tmp_path / "source", of({**form(None), "intermediate_size": 49, "rms_norm_eps": 1e-4})
    )
    described = torch.load(
        convert_checkpoint(source, tmp_path / "target", "internevo", "--names", "llama") / "model_config.pt"
    )
    assert (described["rope_base"], described["layer_norm_epsilon"]) == (500000, 1e-4)
    assert int(32 * described["mlp_ratio"]) == 49 and described["multiple_of"] == 1
    (source / "config.json").write_text(json.dumps(of({**form(LLAMA3), "intermediate_size": 49})))
    result = checkpoint("convert", source, tmp_path / "other", "--to", "internevo", "--names", "llama")
    assert (
        result.exit_code == 1
        and "InternEvo has no entries for rope_theta 500000, rope_type llama3" in result.stderr
    )
