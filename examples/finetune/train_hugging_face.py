"""Fine-tune a LLaMA with Hugging Face's Trainer and DeepSpeed, from a table of tokens and labels.

isthmus run --nproc 2 examples/finetune/train_hugging_face.py MODEL TABLE OUTPUT
"""

import sys
from pathlib import Path

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model, table, output = sys.argv[1:]
args = TrainingArguments(  # before the model, so that ZeRO-3 shards it as it is loaded
    output_dir=output,
    max_steps=10,
    per_device_train_batch_size=4,
    learning_rate=5e-3,
    lr_scheduler_type="constant",
    train_sampling_strategy="sequential",
    logging_steps=1,
    save_steps=10,
    disable_tqdm=True,
    report_to=[],
    deepspeed=str(Path(__file__).with_name("zero3.json")),
)
rows = load_dataset("parquet", data_files=table, split="train").select_columns(["input_ids", "labels"])
Trainer(
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
    args,
    train_dataset=rows.with_format("torch"),
).train()
