"""Write a tiny LLaMA with random parameters for a tokenizer, as a Hugging Face checkpoint.

python examples/finetune/tiny_llama.py TOKENIZER FOLDER
"""

import sys

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    max_position_embeddings=256,
    bos_token_id=tokenizer.bos_token_id,
    eos_token_id=tokenizer.eos_token_id,
    tie_word_embeddings=False,
)
torch.manual_seed(0)
LlamaForCausalLM(config).save_pretrained(sys.argv[2])
