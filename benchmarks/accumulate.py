"""Cost of adding 16-bit numbers in float32: training steps on the host chip, against the CPU's sums in 16 bits.

Peers, each in a process of its own, stepped in turn: the chip as it is, and with ISTHMUS_HOST_ACCUMULATE=cpu. Models:
LLaMA and BERT in bfloat16, and a convolutional network with batch norms in bfloat16. Goal: at most 1.05x.
"""

import argparse
import json
import sys
import time
from typing import Any

from workers import Worker

MODELS = ("LLaMA", "BERT", "convolutions")
GOAL = 1.05
UNFAIR = (
    "Models whose embeddings, losses and norms are a larger or smaller part of the step than in a real one: hence "
    "three kinds, with hidden sizes of 256 and vocabularies of 8192."
)
LOST = "accumulate: a peer exited early with code {code}; see its error above"


def model_and_inputs(name: str) -> tuple[Any, dict[str, Any]]:
    """Build a model in bfloat16 and its batch, on the CPU."""
    import torch
    import transformers

    torch.manual_seed(0)
    if name == "convolutions":
        config = transformers.ResNetConfig(
            embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1], layer_type="basic",
            num_labels=100,
        )  # fmt: skip
        inputs = {"pixel_values": torch.randn(16, 3, 64, 64).bfloat16(), "labels": torch.arange(16)}
        return transformers.ResNetForImageClassification(config).bfloat16(), inputs
    words = torch.randint(0, 8192, (8, 128))
    size: dict[str, Any] = {
        "vocab_size": 8192,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
    }
    kind, config_of = {
        "LLaMA": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
        "BERT": (transformers.BertForMaskedLM, transformers.BertConfig),
    }[name]
    model = kind(config_of(**size, num_attention_heads=4)).bfloat16()
    return model, {"input_ids": words, "labels": words}


def worker(name: str) -> None:
    """Build the model on the chip; for every line read, do a step and print its seconds."""
    import torch

    model, inputs = model_and_inputs(name)
    model.to("chip")
    inputs = {key: value.to("chip") for key, value in inputs.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        loss.item()
        print(json.dumps(time.perf_counter() - start), flush=True)


class Peer(Worker):
    """A worker process that does a step on request."""

    def __init__(self, name: str, accumulate: str) -> None:
        super().__init__(__file__, LOST, "--worker", name, ISTHMUS_HOST_ACCUMULATE=accumulate)

    def step(self) -> float:
        """Do a step and return its seconds."""
        self.ask("step")
        return float(self.answer())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31, help="measured rounds (default 31)")
    parser.add_argument("--worker", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    from harness import interleave, print_table, ratio, save

    rows = []
    for name in MODELS:
        peers = {way: Peer(name, way) for way in ("float32", "cpu")}
        times = interleave({way: peer.step for way, peer in peers.items()}, rounds=options.rounds, warm_up=3)
        for peer in peers.values():
            peer.close()
        rows.append(
            {
                "model": name,
                "cpu_ms": times["cpu"].median * 1e3,
                "float32_ms": times["float32"].median * 1e3,
                "ratio": ratio(times["float32"], times["cpu"]),
            }
        )
    print_table(rows)
    print(f"largest ratio {max(float(str(row['ratio'])) for row in rows):.3f} (goal at most {GOAL})")
    save("accumulate", rows, unfair=UNFAIR, settings={"rounds": options.rounds})


if __name__ == "__main__":
    main()
