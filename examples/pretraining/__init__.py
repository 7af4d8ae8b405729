"""Parts of pretrain_llama.py: flags, text, checkpoints, metrics."""
