"""Hugging Face Trainer as its users write it: no device is named."""
# ruff: noqa - written as its author would

import argparse
import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("output")
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--deepspeed")
parser.add_argument("--fsdp", action="store_true")
options = parser.parse_args()


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        words = (torch.arange(16) * (index % 5 + 1)) % 64
        return {"input_ids": words, "labels": words}


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
)
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=TrainingArguments(
        output_dir=options.output,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        bf16=options.bf16,
        fp16=options.fp16,
        logging_steps=1,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        report_to=[],
        disable_tqdm=True,
        deepspeed=options.deepspeed,
        fsdp=options.fsdp or None,
        fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
        if options.fsdp
        else None,
    ),
    train_dataset=Words(),
    eval_dataset=Words(),
)
trainer.train(resume_from_checkpoint=options.resume)
history = trainer.state.log_history
if trainer.is_world_process_zero():
    print(
        json.dumps(
            {
                "device": str(trainer.model.device),
                "losses": [entry["loss"] for entry in history if "loss" in entry],
                "evaluations": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
            }
        )
    )
