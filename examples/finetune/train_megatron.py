"""Fine-tune a LLaMA with megatron-core, from a converted checkpoint and an indexed data set with masks.

    isthmus run examples/finetune/train_megatron.py MODEL CHECKPOINT DATA OUTPUT

MODEL is the Hugging Face folder whose config.json describes the model, DATA the prefix of the .bin and .idx files.
As many ranks as there are share the tensors of the model.
"""

from __future__ import annotations

import isthmus.megatron  # noqa: F401 - the only line that is not Megatron's; must come first

# isort: split
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import AutoConfig

STEPS, BATCH, LEARNING_RATE = 10, 8, 5e-3


def build(llama: AutoConfig) -> GPTModel:
    """Return the model that a Hugging Face configuration describes."""
    config = TransformerConfig(
        num_layers=llama.num_hidden_layers,
        hidden_size=llama.hidden_size,
        ffn_hidden_size=llama.intermediate_size,
        num_attention_heads=llama.num_attention_heads,
        num_query_groups=llama.num_key_value_heads,
        normalization="RMSNorm",
        layernorm_epsilon=llama.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=dist.get_world_size(),
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=llama.vocab_size,
        max_sequence_length=llama.max_position_embeddings,
        share_embeddings_and_output_weights=llama.tie_word_embeddings,
        position_embedding_type="rope",
        rotary_base=int(llama.rope_parameters["rope_theta"]),
    )


def batch(tokens: IndexedDataset, masks: IndexedDataset, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and masks of the samples of a step, filled up to the longest."""
    some = [index % len(tokens) for index in range(step * BATCH, (step + 1) * BATCH)]
    ids, mask = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(each[index].astype("int64")) for index in some], True)
        for each in (tokens, masks)
    )
    return ids.cuda(), mask.cuda()


def main() -> None:
    model_folder, checkpoint, data, output = sys.argv[1:]
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "RANK" in os.environ:
        dist.init_process_group("nccl")
    else:
        store = dist.TCPStore("localhost", 0, 1, is_master=True)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel(dist.get_world_size(), create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(0)

    file = Path(f"mp_rank_{dist.get_rank():02}/model_optim_rng.pt")
    gpt = build(AutoConfig.from_pretrained(model_folder))
    gpt.load_state_dict(torch.load(Path(checkpoint) / "release" / file)["model"], strict=False)
    model = DistributedDataParallel(gpt.config, DistributedDataParallelConfig(), gpt.cuda())
    settings = OptimizerConfig(optimizer="adam", lr=LEARNING_RATE, weight_decay=0.0, clip_grad=1.0)
    optimizer = get_megatron_optimizer(settings, [model], use_gloo_process_groups=False)

    tokens, masks = IndexedDataset(data), IndexedDataset(f"{data}_mask")
    for step in range(STEPS):
        ids, mask = batch(tokens, masks, step)
        positions = torch.arange(ids.shape[1] - 1).expand(BATCH, -1).cuda()
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = model(ids[:, :-1].contiguous(), positions, None, labels=ids[:, 1:].contiguous())
        loss = (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()
        loss.backward()
        finalize_model_grads([model])
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"iteration {step + 1}/{STEPS} | lm loss: {loss.item():.6f}", flush=True)

    target = Path(output) / f"iter_{STEPS:07}" / file
    target.parent.mkdir(parents=True)
    torch.save({"model": gpt.state_dict()}, target)
    Path(output, "latest_checkpointed_iteration.txt").write_text(str(STEPS))
    dist.destroy_process_group()


main()
