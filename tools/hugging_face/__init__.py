"""Tests of transformers and accelerate over the reference runtime of AscendCL: ``make ascend-hugging-face``."""
