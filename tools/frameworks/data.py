"""Small generated inputs for programs whose data sets and weights are downloads."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

WORDS = 200


def _numbers() -> np.random.RandomState:
    return np.random.RandomState(0)


def json_lines(place: Path, row: Callable[[list[str]], object], rows: int = 64) -> None:
    """Write JSON lines; each row is made of 24 random words."""
    place.parent.mkdir(parents=True, exist_ok=True)
    words = ([f"w{word}" for word in line] for line in _numbers().randint(0, WORDS, (rows, 24)))
    place.write_text("".join(json.dumps(row(line)) + "\n" for line in words))


def text(words: list[str]) -> object:
    """Return a row of a data set for pretraining."""
    return {"text": " ".join(words)}


def messages(words: list[str]) -> object:
    """Return a row of a data set for supervised fine-tuning."""
    turns = (("user", words[:8]), ("assistant", words[8:]))
    return {"messages": [{"role": role, "content": " ".join(said)} for role, said in turns]}


def preferences(words: list[str]) -> object:
    """Return a row of a data set of preferences."""
    parts = {"prompt": words[:8], "chosen": words[8:16], "rejected": words[16:]}
    return {name: " ".join(part) for name, part in parts.items()}


def problems(words: list[str]) -> object:
    """Return a row of a data set for reinforcement learning."""
    return {"prompt": [{"role": "user", "content": " ".join(words[:8])}], "solution": words[8]}


def instructions(words: list[str]) -> object:
    """Return a row of a data set in Alpaca's format."""
    return {"instruction": " ".join(words[:8]), "input": "", "output": " ".join(words[8:])}


def scored_pairs(words: list[str]) -> object:
    """Return a row of a data set of sentence pairs."""
    pair = {"sentence1": " ".join(words[:8]), "sentence2": " ".join(words[8:16])}
    return {**pair, "score": int(words[-1][1:]) / WORDS}


def language_model(place: Path) -> None:
    """Write a LLaMA of two layers with random weights, and its tokenizer, one token per word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    words = [*special, *(f"w{word}" for word in range(WORDS)), "user", "assistant"]
    model = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['role'] }} {% if message['role'] == 'assistant' %}{% generation %}"
        "{{ message['content'] }} </s> {% endgeneration %}{% else %}{{ message['content'] }} {% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    special_ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    config = LlamaConfig(vocab_size=256, max_position_embeddings=512, **sizes, **special_ids)
    LlamaForCausalLM(config).save_pretrained(place)


def sentence_encoder(place: Path) -> None:
    """Write a BERT of two layers with random weights and a tokenizer, one token per word."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{word}" for word in range(WORDS))]
    (place / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(place / "vocab.txt")).save_pretrained(place)
    torch.manual_seed(0)
    sizes = {"hidden_size": 768, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    BertModel(BertConfig(vocab_size=256, **sizes)).save_pretrained(place)


def text_to_image(place: Path) -> None:
    """Write a Stable Diffusion of few channels with random weights, and a tokenizer, one token per letter."""
    import torch
    from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (place / "tokenizer").mkdir(parents=True, exist_ok=True)
    files = {name: place / "tokenizer" / name for name in ("vocab.json", "merges.txt")}
    files["vocab.json"].write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    files["merges.txt"].write_text("#version: 0.2\n")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {
        "bos_token_id": len(tokens) - 2,
        "eos_token_id": len(tokens) - 1,
        "pad_token_id": len(tokens) - 1,
    }
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            block_out_channels=[32, 32],
            latent_channels=4,
        ),
        text_encoder=CLIPTextModel(CLIPTextConfig(vocab_size=len(tokens), **sizes, **special)),
        tokenizer=CLIPTokenizer(*map(str, files.values()), model_max_length=77),
        unet=UNet2DConditionModel(
            sample_size=16,
            block_out_channels=[32, 32],
            layers_per_block=1,
            down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
            up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
            cross_attention_dim=32,
            attention_head_dim=4,
        ),
        scheduler=DDPMScheduler(num_train_timesteps=1000),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(place)


def captions(place: Path, size: int = 32, images: int = 16) -> None:
    """Write images and their captions, in the layout of datasets' image folder."""
    for index in range(images):
        image(place / f"{index}.png", size, index)
    numbers = itertools.count()
    json_lines(
        place / "metadata.jsonl",
        lambda words: {"file_name": f"{next(numbers)}.png", "text": " ".join(words[:8])},
        images,
    )


def torchtune_model(place: Path, layers: int = 2, width: int = 64, vocabulary: int = 2000) -> None:
    """Write random weights of torchtune's llama2, which the configuration in programs.py describes."""
    import torch

    torch.manual_seed(0)
    weights = {
        f"layers.{layer}.{name}.weight": torch.randn(rows, columns) * 0.02
        for layer in range(layers)
        for name, rows, columns in (
            *((f"attn.{each}", width, width) for each in ("q_proj", "k_proj", "v_proj", "output_proj")),
            ("mlp.w1", 4 * width, width),
            ("mlp.w2", width, 4 * width),
            ("mlp.w3", 4 * width, width),
        )
    }
    norms = [f"layers.{layer}.{name}" for layer in range(layers) for name in ("sa_norm", "mlp_norm")]
    weights |= {f"{name}.scale": torch.ones(width) for name in (*norms, "norm")}
    weights |= {
        f"{name}.weight": torch.randn(vocabulary, width) * 0.02 for name in ("tok_embeddings", "output")
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, place)


def tokens(place: Path, vocabulary: int = 500, length: int = 20_000) -> None:
    """Write random token numbers, uint16."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _numbers().randint(0, vocabulary, length).astype(np.uint16).tofile(place)


def image(place: Path, size: int, seed: int, mode: str = "RGB") -> None:
    """Write an image of random pixels; in mode ``1``, a mask with a rectangle."""
    from PIL import Image

    place.parent.mkdir(parents=True, exist_ok=True)
    if mode == "1":
        pixels = np.zeros((size, size), np.uint8)
        pixels[size // 4 : size // 2, size // 4 : size // 2 + seed] = 1
        Image.fromarray(pixels * 255).save(place)
        return
    channels = {"RGB": 3, "RGBA": 4}[mode]
    pixels = np.random.RandomState(seed).randint(0, 255, (size, size, channels)).astype(np.uint8)
    Image.fromarray(pixels, mode).save(place)


def image_folders(place: Path, size: int = 64, images: int = 8) -> None:
    """Write images of two classes, in the layout of torchvision's ImageFolder, for training and validation."""
    for part in ("train", "val"):
        for index in range(images):
            image(place / part / f"class{index % 2}" / f"{index}.png", size, index)


def masks(folder: Path) -> None:
    """Write images and masks of Pytorch-UNet."""
    for index in range(8):
        image(folder / "data/imgs" / f"{index}.png", 64, index)
        image(folder / "data/masks" / f"{index}.png", 64, index, "1")


def boxes(place: Path, size: int = 64, images: int = 8) -> None:
    """Write a detection data set in YOLO's layout, and its data.yaml."""
    for part in ("train", "val"):
        for index in range(images):
            image(place / "images" / part / f"{index}.png", size, index)
            label = place / "labels" / part / f"{index}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text(f"{index % 2} 0.5 0.5 0.4 0.{3 + index % 4}\n")
    (place / "data.yaml").write_text(
        f"path: {place.resolve()}\ntrain: {place.resolve()}/images/train\nval: {place.resolve()}/images/val\n"
        "nc: 2\nnames: [a, b]\n"
    )


def views(place: Path) -> None:
    """Write a scene of NeRF's synthetic data set: 16 x 16 pixels, cameras on a circle."""
    for part, frames in (("train", 4), ("val", 2), ("test", 2)):
        described = []
        for index in range(frames):
            angle = 2 * np.pi * index / frames
            image(place / part / f"{index}.png", 16, index, "RGBA")
            pose = [
                [np.cos(angle), 0, np.sin(angle), 4 * np.sin(angle)],
                [0, 1, 0, 0],
                [-np.sin(angle), 0, np.cos(angle), 4 * np.cos(angle)],
                [0, 0, 0, 1],
            ]
            described.append({"file_path": f"./{part}/{index}", "transform_matrix": pose})
        text = json.dumps({"camera_angle_x": 0.7, "frames": described})
        (place / f"transforms_{part}.json").write_text(text)


def citations(place: Path, nodes: int = 1600, features: int = 64) -> None:
    """Write a random graph in the format of Cora: cora.content and cora.cites."""
    numbers = _numbers()
    bits = numbers.randint(0, 2, (nodes, features))
    place.mkdir(parents=True, exist_ok=True)
    (place / "cora.content").write_text(
        "".join(f"{node}\t{chr(9).join(map(str, line))}\tclass{node % 7}\n" for node, line in enumerate(bits))
    )
    edges = numbers.randint(0, nodes, (3 * nodes, 2))
    (place / "cora.cites").write_text("".join(f"{a}\t{b}\n" for a, b in edges))


def planetoid(place: Path) -> None:
    """Write a random graph in the format of Planetoid's Cora."""
    import scipy.sparse

    numbers = _numbers()
    place.mkdir(parents=True, exist_ok=True)
    features = scipy.sparse.csr_matrix(numbers.randint(0, 2, (2708, 64)).astype(np.float32))
    labels = np.eye(7, dtype=np.int32)[numbers.randint(0, 7, 2708)]
    parts = {"x": slice(0, 140), "allx": slice(0, 1708), "tx": slice(1708, 2708)}
    contents = {name: features[part] for name, part in parts.items()}
    contents |= {name.replace("x", "y"): labels[part] for name, part in parts.items()}
    contents["graph"] = {node: numbers.randint(0, 2708, 3).tolist() for node in range(2708)}
    for name, content in contents.items():
        (place / f"ind.cora.{name}").write_bytes(pickle.dumps(content))
    (place / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in range(1708, 2708)))
