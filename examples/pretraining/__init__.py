"""What pretrain_llama.py needs beside training: flags, text, checkpoints, metrics on disk."""
