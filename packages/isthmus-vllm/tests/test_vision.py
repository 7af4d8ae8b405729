"""A vision model: tokens after images equal those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.vllm.models import make_vision

TOKENS = 24
TEXTS = ["<image>the quick brown fox", "lazy dog <image> a", "import <image>"]


def test_tokens_after_images(engine: Callable[..., Any], tmp_path: Path) -> None:
    from PIL import Image
    from transformers import AutoProcessor, Idefics3ForConditionalGeneration
    from vllm import SamplingParams

    folder = make_vision(tmp_path / "idefics3")
    source = np.random.default_rng(0)
    images = [Image.fromarray(source.integers(0, 256, (40, 56, 3), dtype=np.uint8)) for _ in TEXTS]
    model = Idefics3ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder)
    wanted = []
    for text, image in zip(TEXTS, images, strict=True):
        inputs = processor(text=text, images=image, return_tensors="pt")
        with torch.no_grad():
            out = model.generate(
                **inputs, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, eos_token_id=None,
                pad_token_id=0,
            )  # fmt: skip
        wanted.append(out[0, inputs["input_ids"].shape[1] :].tolist())
    prompts = [
        {"prompt": text, "multi_modal_data": {"image": image}}
        for text, image in zip(TEXTS, images, strict=True)
    ]
    parameters = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    found = engine(str(folder)).generate(prompts, parameters, use_tqdm=False)
    assert [list(each.outputs[0].token_ids) for each in found] == wanted
    assert len({tuple(each) for each in wanted}) == len(wanted)
