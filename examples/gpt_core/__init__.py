"""What examples/pretrain_gpt_core.py is made of."""
