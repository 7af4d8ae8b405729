"""A tiny LLaMA saved by DeepSpeed, and the same parameters as DeepSpeed's own zero_to_fp32 reads them.

    isthmus run --nproc 2 tests/helpers/checkpoint_deepspeed.py FOLDER STAGE...

``FOLDER/hf`` is the model; ``FOLDER/zeroN`` and ``FOLDER/expectedN.safetensors`` are written, for a stage such as
``3-frozen``, with frozen parameters, ``FOLDER/zero3frozen`` and so on.
"""

import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def main() -> None:
    deepspeed.init_distributed()
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    folder, *stages = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
    for name in stages:
        stage, _, frozen = name.partition("-")
        model = AutoModelForCausalLM.from_pretrained(Path(folder) / "hf", dtype=torch.float32)
        for key, parameter in model.named_parameters():  # an embedding, and all but a few matrices
            parameter.requires_grad_(not frozen or "q_proj" in key or "norm" in key)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [
            {
                "params": [each for each in trained if each.dim() == dimensions],
                "weight_decay": dimensions / 10,
            }
            for dimensions in (1, 2)
        ]
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {
                "stage": int(stage),
                "reduce_bucket_size": 1e5,
                "allgather_bucket_size": 1e5,
            },
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
            "bf16": {"enabled": True},
        }
        engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
        tokens = torch.arange(16, device=engine.device)[None]
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
        saved = stage + frozen
        engine.save_checkpoint(f"{folder}/zero{saved}")
        dist.barrier()
        if dist.get_rank() == 0:
            expected = get_fp32_state_dict_from_zero_checkpoint(f"{folder}/zero{saved}")
            expected = {key: tensor.contiguous().clone() for key, tensor in expected.items()}
            save_file(expected, f"{folder}/expected{saved}.safetensors")
        dist.barrier()
        engine.destroy()


if __name__ == "__main__":
    main()
