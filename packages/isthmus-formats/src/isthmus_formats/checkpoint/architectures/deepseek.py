"""DeepSeek-V2 and V3: latent attention, experts after the first dense layers.

The layers that predict further tokens (``num_nextn_predict_layers``) are no part of the model that transformers and
most trainers load, and are left out.
"""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config, decoder
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("deepseek_v2", "deepseek_v3")
NAMES = (
    decoder.ENDS
    + """
model.layers.{layer}.input_layernorm.weight = latent_input_norm.weight
model.layers.{layer}.self_attn.q_proj.weight = latent.q.weight
model.layers.{layer}.self_attn.q_a_proj.* = latent.q_down.*
model.layers.{layer}.self_attn.q_a_layernorm.weight = latent.q_norm.weight
model.layers.{layer}.self_attn.q_b_proj.weight = latent.q_up.weight
model.layers.{layer}.self_attn.kv_a_proj_with_mqa.* = latent.kv_down.*
model.layers.{layer}.self_attn.kv_a_layernorm.weight = latent.kv_norm.weight
model.layers.{layer}.self_attn.kv_b_proj.weight = latent.kv_up.weight
model.layers.{layer}.self_attn.o_proj.* = attention.o.*
model.layers.{layer}.mlp.gate.e_score_correction_bias = router.bias
model.layers.{layer}.mlp.shared_experts.gate_proj.weight = shared.gate.weight
model.layers.{layer}.mlp.shared_experts.up_proj.weight = shared.up.weight
model.layers.{layer}.mlp.shared_experts.down_proj.weight = shared.down.weight
"""
    + decoder.MLP
    + decoder.EXPERTS
)


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    yield from decoder.outer_parameters(config)
    for layer in range(config["num_hidden_layers"]):
        yield from _attention(config, layer)
        sparse = (
            layer >= config.get("first_k_dense_replace", 0) and layer % config.get("moe_layer_freq", 1) == 0
        )
        if not config.get("n_routed_experts") or not sparse:
            yield from decoder.mlp(config, layer)
            continue
        size = config["moe_intermediate_size"]
        yield from decoder.experts(config, layer, config["n_routed_experts"], size)
        if config["model_type"] == "deepseek_v3":
            yield Parameter("router.bias", (config["n_routed_experts"],), layer)
        if shared := config.get("n_shared_experts"):
            yield from decoder.gated_mlp(config, size * shared, layer, prefix="shared.")


def _attention(config: Config, layer: int) -> Iterator[Parameter]:
    hidden, heads, bias = (
        config["hidden_size"],
        config["num_attention_heads"],
        config.get("attention_bias", False),
    )
    rotary, plain, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    rank, latent = config.get("q_lora_rank"), config["kv_lora_rank"]
    yield Parameter("latent_input_norm.weight", (hidden,), layer)
    if rank:
        yield Parameter("latent.q_down.weight", (rank, hidden), layer)
        if bias:
            yield Parameter("latent.q_down.bias", (rank,), layer)
        yield Parameter("latent.q_norm.weight", (rank,), layer)
        yield Parameter("latent.q_up.weight", (heads * (plain + rotary), rank), layer, shard=0)
    else:
        yield Parameter("latent.q.weight", (heads * (plain + rotary), hidden), layer, shard=0)
    yield Parameter("latent.kv_down.weight", (latent + rotary, hidden), layer)
    if bias:
        yield Parameter("latent.kv_down.bias", (latent + rotary,), layer)
    yield Parameter("latent.kv_norm.weight", (latent,), layer)
    yield Parameter("latent.kv_up.weight", (heads * (plain + value), latent), layer, shard=0)
    yield Parameter("attention.o.weight", (hidden, heads * value), layer, shard=1)
    if bias:
        yield Parameter("attention.o.bias", (hidden,), layer)
