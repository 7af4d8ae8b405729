"""Train by TRL's GRPO with vLLM as its generator, in one process; print what TRL logs at each step, as JSON.

isthmus run -m tools.vllm.grpo MODEL FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from isthmus import ops

PROMPTS = ["the quick brown fox", "lazy dog", "a", "import torch"]


def count_letters(completions: list[str], **_: Any) -> list[float]:
    """Reward the number of different letters."""
    return [float(len(set(each))) for each in completions]


def main(model: str, folder: str) -> None:
    """Train for three steps of four completions."""
    ops.patch("transformers")  # the same operators as the generator's
    config = GRPOConfig(
        output_dir=folder, model_init_kwargs={"dtype": "bfloat16"}, bf16=False, gradient_checkpointing=False,
        use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.05, vllm_max_model_length=128,
        max_completion_length=16, num_generations=4, per_device_train_batch_size=4, max_steps=3, learning_rate=1e-2,
        logging_steps=1, save_strategy="no", report_to=[],
    )  # fmt: skip
    data = Dataset.from_dict({"prompt": PROMPTS * 4})
    trainer = GRPOTrainer(model=model, reward_funcs=count_letters, args=config, train_dataset=data)
    trainer.train()
    print(json.dumps([each for each in trainer.state.log_history if "loss" in each]))


if __name__ == "__main__":
    main(*sys.argv[1:])
