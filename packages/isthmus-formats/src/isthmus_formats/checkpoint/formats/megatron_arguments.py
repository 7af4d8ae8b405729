"""Megatron's saved arguments, from the configuration of a model.

Names are those of Megatron-LM's options and of megatron-core's TransformerConfig. ``--use-checkpoint-args`` reads
those in ``load_args_from_checkpoint``; the others must be given to Megatron again, see :func:`options_to_repeat`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from isthmus_formats.checkpoint.architectures import Model
from isthmus_formats.checkpoint.architectures.decoder import head_size, sliding_window
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Layout
from isthmus_formats.checkpoint.rope import Rope, rope

_LLAMA3 = {
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}  # Megatron's own
_YARN = ("original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
_COMPARED = {  # arguments that change the meaning of the same tensors
    *("num_attention_heads", "kv_channels", "normalization", "norm_epsilon", "swiglu", "squared_relu"),
    *("rotary_base", "rotary_percent", "use_rope_scaling", "rotary_seq_len_interpolation_factor"),
}
_REPEATED = {  # arguments that --use-checkpoint-args does not read, with Megatron's default
    "norm_epsilon": 1e-5,
    "qk_layernorm": False,
    "bias_gelu_fusion": True,
    "use_rope_scaling": False,
    "rope_scaling_factor": 8.0,
    "rotary_seq_len_interpolation_factor": None,
    "window_size": None,
    "window_attn_skip_freq": None,
    "multi_latent_attention": False,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
    "rope_type": None,
    "rotary_scaling_factor": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.0,
    "yarn_original_max_position_embeddings": None,
    "yarn_beta_fast": None,
    "yarn_beta_slow": None,
    "moe_shared_expert_gate": False,
    "moe_router_num_groups": None,
    "moe_router_group_topk": None,
}
_ROUTING: dict[str, dict[str, Any]] = {  # defaults of transformers
    "mixtral": {"num_experts_per_tok": 2, "norm_topk_prob": True},
    "qwen2_moe": {"num_experts_per_tok": 4, "norm_topk_prob": False},
    "qwen3_moe": {"num_experts_per_tok": 8, "norm_topk_prob": False},
    "deepseek_v2": {"num_experts_per_tok": None, "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    "deepseek_v3": {
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
    },
}


def arguments(model: Model, layout: Layout, dtype: torch.dtype | None = None) -> argparse.Namespace:
    """Return the options of a checkpoint.

    Args:
        model: its model.
        layout: its layout.
        dtype: data type of its parameters.

    Raises:
        CheckpointError: Megatron has no options for the configuration.
    """
    config = model.config
    heads = config.get("num_attention_heads", config.get("n_head"))
    roles = {each.role for each in model.parameters}
    shapes = {each.role: each.shape for each in model.parameters}
    dense = shapes.get("mlp.down.weight")
    gpt2 = model.type == "gpt2"
    epsilon = config.get("layer_norm_epsilon", 1e-5) if gpt2 else config.get("rms_norm_eps", 1e-6)
    return argparse.Namespace(
        num_layers=model.layers,
        hidden_size=shapes["embedding.weight"][1],
        ffn_hidden_size=dense[1] if dense else config["intermediate_size"],
        num_attention_heads=heads,
        num_query_groups=model.groups,
        group_query_attention=model.groups != heads,
        kv_channels=config.get("v_head_dim") or (config["n_embd"] // heads if gpt2 else head_size(config)),
        max_position_embeddings=config.get("max_position_embeddings", config.get("n_positions")),
        vocab_size=model.vocabulary,
        padded_vocab_size=layout.vocabulary,
        untie_embeddings_and_output_weights=not model.is_tied,
        normalization="LayerNorm" if "norm.bias" in roles else "RMSNorm",
        norm_epsilon=epsilon,
        layernorm_epsilon=epsilon,
        apply_layernorm_1p=False,
        apply_query_key_layer_scaling=False,
        qk_layernorm=bool(roles & {"attention.q_norm.weight", "latent.kv_norm.weight"}),
        attention_dropout=config.get("attention_dropout", config.get("attn_pdrop", 0.1 if gpt2 else 0.0)),
        hidden_dropout=config.get("resid_pdrop", 0.1 if gpt2 else 0.0),
        **_activation(model),
        **_biases(roles),
        **_positions(model, layout),
        **_window(model),
        **_experts(model, layout),
        **_latent(model),
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vpp if layout.vpp > 1 else None,
        num_layers_per_virtual_pipeline_stage=_layers_per_stage(model, layout),
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.tp,
        transformer_impl="local" if layout.names == "local" else "transformer_engine",
        ckpt_format="torch",
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        fp16=dtype == torch.float16,
        iteration=0,
        consumed_train_samples=0,
        consumed_valid_samples=0,
    )


def check_saved(saved: object, model: Model, layout: Layout) -> None:
    """Check that the arguments of a checkpoint agree with the configuration of the model.

    Args:
        saved: the arguments, maybe of another version of Megatron.
        model: the model.
        layout: the layout of the checkpoint.

    Raises:
        CheckpointError: they do not agree.
    """
    try:
        expected = vars(arguments(model, layout))
    except CheckpointError:  # no arguments to compare with
        return
    ignored = {"kv_channels"} if expected["multi_latent_attention"] else set()
    for name in sorted(_COMPARED - ignored & expected.keys() & vars(saved).keys()):
        value, ours = getattr(saved, name), expected[name]
        if value != ours and value is not None:
            raise CheckpointError(
                f"Megatron's arguments in the checkpoint have {name} {value}, config.json calls for {ours}; give the "
                "config.json of this model with --config"
            )


def options_to_repeat(found: argparse.Namespace) -> str:
    """Return the options that Megatron's --use-checkpoint-args does not read, as on its command line."""
    words: list[str] = []
    for name, default in _REPEATED.items():
        if (value := getattr(found, name, default)) != default:
            words.append(("--no-" if value is False else "--") + name.replace("_", "-"))
            words += [] if isinstance(value, bool) else [str(value).replace(" ", "").strip("()")]
    return " ".join(words)


def hint(model: Model, layout: Layout) -> str:
    """Return a message with the options to give again, or an empty string."""
    options = options_to_repeat(arguments(model, layout))
    return (
        f"Megatron's --use-checkpoint-args does not read all options; also give {options}" if options else ""
    )


def _activation(model: Model) -> dict[str, Any]:
    gated = model.type != "gpt2"
    name = model.config.get("hidden_act" if gated else "activation_function") or (
        "silu" if gated else "gelu_new"
    )
    if name not in ({"silu", "swish"} if gated else {"gelu", "gelu_new", "gelu_pytorch_tanh"}):
        raise CheckpointError(f"Megatron has no option for the activation {name}; convert to another format")
    # The fused function is the approximation by tanh, the other one is exact.
    return {"swiglu": gated, "squared_relu": False, "bias_gelu_fusion": name != "gelu"}


def _biases(roles: set[str]) -> dict[str, Any]:
    """Return whether all linear layers have biases, or only q, k and v."""
    linear = {
        each.removesuffix("weight") for each in roles if each.startswith(("attention.", "latent.", "mlp."))
    }
    linear = {each for each in linear if each.endswith(".") and not each.endswith("_norm.")}
    biased = {each for each in linear if f"{each}bias" in roles}
    if biased not in (set(), linear, {"attention.q.", "attention.k.", "attention.v."}):
        raise CheckpointError(
            f"Megatron has no option for biases of {', '.join(each.rstrip('.') for each in sorted(biased))} alone; "
            "convert to another format"
        )
    return {
        "add_bias_linear": bool(biased) and biased == linear,
        "add_qkv_bias": bool(biased) and biased != linear,
    }


def _positions(model: Model, layout: Layout) -> dict[str, Any]:
    if any(each.role == "position.weight" for each in model.parameters):
        return {
            "position_embedding_type": "learned_absolute",
            "add_position_embedding": True,
            "use_rotary_position_embeddings": False,
        }
    found = rope(model.config)
    latent = "kv_lora_rank" in model.config
    yarn = found.kind == "yarn"
    return {
        "position_embedding_type": "yarn" if yarn and not latent else "rope",
        "add_position_embedding": True,
        "use_rotary_position_embeddings": not yarn or latent,  # this option replaces the type by rope
        "rotary_base": int(found.theta) if found.theta.is_integer() else found.theta,
        "rotary_percent": found.partial,
        "rotary_interleaved": layout.interleaved,
        "rotary_seq_len_interpolation_factor": None,
        "use_rope_scaling": False,
        "rope_scaling_factor": 8.0,
        **({"rope_type": "yarn" if yarn else "rope"} if latent else {}),
        **_scaling(found, latent),
    }


def _scaling(found: Rope, latent: bool) -> dict[str, Any]:
    """Return the options of a scaling."""
    factor: Any = found.scaling.get("factor")
    # A dynamic scaling begins beyond max_position_embeddings, the longest sequence that Megatron accepts.
    if found.kind in {"default", "dynamic"}:
        return {}
    if found.kind == "linear" and not latent:
        return {"rotary_seq_len_interpolation_factor": int(factor) if float(factor).is_integer() else factor}
    if found.kind == "llama3" and not latent and found.has(**_LLAMA3):
        return {"use_rope_scaling": True, "rope_scaling_factor": factor}
    if found.kind == "yarn" and found.scaling.get("attention_factor") is None and factor:
        defaults = {"beta_fast": 32, "beta_slow": 1, "mscale": None, "mscale_all_dim": None}
        values = {**defaults, **{name: value for name, value in found.scaling.items() if value is not None}}
        if values["mscale"] is None or values["mscale_all_dim"] is None:  # transformers does the same
            values |= {"mscale": 1.0, "mscale_all_dim": 0.0}
        options = {"rotary_scaling_factor": factor, **{name: values[name] for name in _YARN}}
        if not latent:  # TransformerConfig has names of its own then
            options |= {f"yarn_{name}": value for name, value in options.items()}
            options["yarn_correction_range_round_to_int"] = values.get("truncate", True)
        return options
    raise CheckpointError(f"Megatron has no options for {found}; convert to another format")


def _window(model: Model) -> dict[str, Any]:
    """Return the sliding window of attention, and which layers have it."""
    config = model.config
    if not (size := sliding_window(config)):
        return {"window_size": None, "window_attn_skip_freq": None}
    first = config.get("max_window_layers", 0) if model.type.startswith("qwen") else 0
    types = config.get("layer_types") or [
        "sliding_attention" if layer >= first else "full_attention" for layer in range(model.layers)
    ]
    sliding = [int(each == "sliding_attention") for each in types]
    return {"window_size": (size - 1, 0), "window_attn_skip_freq": None if all(sliding) else sliding}


def _experts(model: Model, layout: Layout) -> dict[str, Any]:
    config = model.config
    if not model.experts:
        return {"num_experts": None, "moe_layer_freq": 1}
    sparse = {each.layer for each in model.parameters if each.role == "router.weight"}
    shapes = {each.role: each.shape for each in model.parameters}
    shared = shapes.get("shared.down.weight")
    third = model.type == "deepseek_v3"
    config = {**_ROUTING[model.type], **config}
    limited = third or config.get("topk_method") == "group_limited_greedy"
    normalized = config["norm_topk_prob"]
    if third and not normalized:
        raise CheckpointError(
            "Megatron has no option for sigmoid scores with norm_topk_prob false; convert to another format"
        )
    frequency = [int(layer in sparse) for layer in range(model.layers)]
    return {
        "num_experts": model.experts,
        "moe_layer_freq": 1 if all(frequency) else frequency,
        "moe_ffn_hidden_size": shapes["down.weight"][1],
        "moe_router_topk": config["num_experts_per_tok"],
        "moe_router_pre_softmax": not normalized,
        "moe_router_score_function": "sigmoid" if third else "softmax",
        "moe_router_enable_expert_bias": "router.bias" in shapes,
        "moe_router_topk_scaling_factor": config.get("routed_scaling_factor"),
        "moe_router_num_groups": (config.get("n_group") if limited else None) or None,
        "moe_router_group_topk": (config.get("topk_group") if limited else None) or None,
        "moe_shared_expert_intermediate_size": shared[1] if shared else None,
        "moe_shared_expert_gate": "shared_gate.weight" in shapes,
        "moe_grouped_gemm": layout.names == "grouped",
    }


def _latent(model: Model) -> dict[str, Any]:
    config = model.config
    if "kv_lora_rank" not in config:
        return {"multi_latent_attention": False}
    return {
        "multi_latent_attention": True,
        "q_lora_rank": config.get("q_lora_rank"),
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_head_dim": config["qk_nope_head_dim"],
        "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
    }


def _layers_per_stage(model: Model, layout: Layout) -> int | None:
    return model.layers // (layout.pp * layout.vpp) if layout.vpp > 1 and not layout.stages else None
