"""Parts of examples/pretrain_gpt_core.py."""
