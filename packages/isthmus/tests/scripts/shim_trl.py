"""Supervised fine-tuning by trl on a vocabulary of eight words, in each precision."""
# ruff: noqa - written as its author would

import json
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = {word: index for index, word in enumerate("<pad> <eos> <unk> a b c d e".split())}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)
data = Dataset.from_dict({"text": ["a b c d e"] * 16})
found = {}
for precision in ("bf16", "fp16", "no"):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
    )
    options = {"bf16": precision == "bf16", "fp16": precision == "fp16"}
    arguments = SFTConfig(
        output_dir=sys.argv[1],
        max_steps=3,
        logging_steps=1,
        report_to=[],
        per_device_train_batch_size=4,
        max_length=8,
        learning_rate=1e-2,
        save_strategy="no",
        **options,
    )
    trainer = SFTTrainer(
        LlamaForCausalLM(config), train_dataset=data, processing_class=tokenizer, args=arguments
    )
    trainer.train()
    found[precision] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    found["device"] = trainer.model.device.type
print(json.dumps(found))
