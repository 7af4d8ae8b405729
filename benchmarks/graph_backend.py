"""A training step compiled by the graph backend against the same step in eager mode, on the numpy chip.

Tiny LLaMA, BERT and ResNet of transformers, forward and backward; LLaMA with 20 sequence lengths too. Peers, in turn:
eager; compiled unfused, whose results must be bit-equal to the eager kernels of the same traced graph; compiled
fused, within a tolerance. Goal: fused at most 0.8x of eager. The limit of each peer is the time inside its kernels,
from the profiler: of each kernel the shortest of five steps.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

os.environ.setdefault("ISTHMUS_DRIVER", "numpy")

GOAL = 0.8
UNFAIR = (
    "Transformers takes other branches while it is traced (an explicit attention mask, repeated keys), so results "
    "are compared with torch.compile(backend='eager'), which runs the traced code by the same kernels; times are "
    "compared with plain eager mode. The kernels are Python functions over NumPy, slower than those of a chip, so "
    "that the time outside of them is a smaller part. Compilation is not in the step. Times are the process's on the "
    "CPU: all peers compute there, and other processes disturb them less than time that passes."
)


Made: TypeAlias = tuple[Any, list[dict[str, Any]]]  # a model and its batches, on the CPU


def llama(lengths: Sequence[int] = (32,)) -> Made:
    """LLaMA."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    batches = [torch.randint(0, 128, (2, length)) for length in lengths]
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))
    return model, [{"input_ids": ids, "labels": ids} for ids in batches]


def llama_lengths() -> Made:
    """LLaMA with 20 sequence lengths."""
    return llama([9 + 7 * i % 40 for i in range(20)])


def bert() -> Made:
    """BERT."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(BertConfig(**sizes, **dropout, num_attention_heads=4))
    mask = torch.ones(2, 32, dtype=torch.long)
    ids = torch.randint(0, 128, (2, 32))
    return model, [{"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1])}]


def resnet() -> Made:
    """ResNet."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = ResNetForImageClassification(ResNetConfig(**sizes, num_labels=4))
    return model, [{"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}]


class Case:
    """A model on the chip, and its step under each peer: one for each batch."""

    def __init__(self, make: Callable[[], Made]) -> None:
        import torch

        torch.manual_seed(0)
        model, batches = make()
        self.model = model.to("chip")
        self.batches = [{name: x.to("chip") for name, x in batch.items()} for batch in batches]
        self.state = {name: x.clone() for name, x in self.model.state_dict().items()}
        compile = torch.compile
        self.peers: dict[str, Any] = {
            "eager": self.model,
            "unfused": compile(self.model, backend="isthmus", options={"fuse": False}),
            "fused": compile(self.model, backend="isthmus"),
        }
        self.traced = self.results(compile(self.model, backend="eager"))

    def step(self, forward: Any) -> list[Any]:
        """Loss, logits and gradients of a step for each batch."""
        found = []
        for batch in self.batches:
            out = forward(**batch)
            out.loss.backward()
            found += [out.loss, out.logits, *(parameter.grad for parameter in self.model.parameters())]
            self.model.zero_grad()
        return found

    def results(self, forward: Any) -> list[Any]:
        """Those of the initial state, on the CPU."""
        self.model.load_state_dict(self.state)
        return [x.detach().cpu() for x in self.step(forward)]

    def check(self) -> None:
        """Exit unless unfused results are bit-equal, and fused ones close."""
        import torch

        if not all(map(torch.equal, self.results(self.peers["unfused"]), self.traced)):
            raise SystemExit("graph_backend: unfused results are not bit-equal to those of eager kernels")
        for fused, expected in zip(self.results(self.peers["fused"]), self.traced, strict=True):
            torch.testing.assert_close(fused, expected, rtol=1e-4, atol=1e-5)

    def timed(self, name: str) -> Callable[[], float]:
        """Function that returns the CPU seconds of a peer's step."""

        def run() -> float:
            start = time.process_time()
            self.step(self.peers[name])
            return time.process_time() - start

        return run

    def kernels(self, name: str) -> float:
        """Seconds inside kernels of one step: other processes interrupt some of the kernels of each."""
        steps = [self.durations(name) for _ in range(5)]
        return sum(map(min, zip(*steps, strict=True))) / 1e6

    def durations(self, name: str) -> list[float]:
        """Microseconds of each kernel of a step."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as trace:
            self.step(self.peers[name])
        ranges = [e.time_range for e in trace.events() if e.device_type != torch.autograd.DeviceType.CPU]
        return [each.elapsed_us() for each in sorted(ranges, key=lambda each: each.start)]


def measure(rounds: int) -> list[dict[str, Any]]:
    """Return the rows of the result table."""
    import torch
    from harness import interleave, ratio

    rows = []
    for make in (llama, llama_lengths, bert, resnet):
        torch._dynamo.reset()
        case = Case(make)
        case.check()
        times = interleave({name: case.timed(name) for name in case.peers}, rounds=rounds, warm_up=2)
        rows += [
            {
                "model": make.__name__,
                "peer": name,
                "step_ms": times[name].median * 1e3 / len(case.batches),
                "over_eager": ratio(times[name], times["eager"]),
                "kernels_ms": case.kernels(name) * 1e3 / len(case.batches),
            }
            for name in case.peers
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    options = parser.parse_args()
    from harness import print_table, save

    rows = measure(options.rounds)
    print_table(rows)
    slowest = max(row["over_eager"] for row in rows if row["peer"] == "fused")
    print(f"fused / eager: at most {slowest:.3f} (goal at most {GOAL})")
    save("graph_backend", rows, unfair=UNFAIR, settings={"rounds": options.rounds})


if __name__ == "__main__":
    main()
