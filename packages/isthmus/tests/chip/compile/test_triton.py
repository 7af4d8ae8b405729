"""Inductor's kernels in Triton on the host chip: ISTHMUS_COMPILE_CODEGEN=triton."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import flex_attention

from isthmus.chip.compile.dynamo_device import ChipInterface

pytest.importorskip("isthmus_triton")
pytestmark = pytest.mark.host("isthmus-triton compiles for chips whose memory the CPU addresses")


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ISTHMUS_COMPILE_CODEGEN", "triton")
    torch._dynamo.reset()
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch._dynamo.reset()


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x.sin() * 2, x.shape[-1:], weight)


def test_forward_and_backward_are_kernels_in_triton() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(33, 77), torch.randn(77)]
    ours = [each.to("chip").requires_grad_() for each in inputs]
    theirs = [each.double().requires_grad_() for each in inputs]

    def run() -> Any:
        out = torch.compile(norm, fullgraph=True)(*ours)
        out.square().sum().backward()
        return out

    torch.chip.reset_dispatch_stats()
    out, sources = run_and_get_code(run)
    assert len(sources) == 2 and all("triton_heuristics" in each for each in sources)
    found = torch.chip.dispatch_stats()["operators"]
    assert {route["route"] for name, route in found.items() if name.startswith("triton::")} == {"kernel"}
    assert not any(name.startswith("aten::native_layer_norm") for name in found)
    expected = norm(*theirs)
    expected.square().sum().backward()
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-4, atol=1e-4)


def test_random_numbers_are_of_the_chips_generator() -> None:
    dropout = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5))
    x, drawn = torch.ones(4096, device="chip"), []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(dropout(x))
    torch.manual_seed(4)
    other = dropout(x)
    assert torch.equal(*drawn) and not torch.equal(drawn[0], other)
    assert other.mean().item() == pytest.approx(1, abs=0.1)


def test_without_a_backend_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChipInterface, "is_triton_capable", staticmethod(lambda device=None: False))
    with pytest.raises(
        Exception, match="no Triton backend compiles for this chip: run `pip install isthmus-triton`"
    ):
        torch.compile(torch.sin)(torch.ones(2, device="chip"))


@pytest.mark.full
def test_a_compiled_graph_is_captured_and_replayed() -> None:
    function = torch.compile(lambda x: torch.softmax(x * 3, -1) + 1)
    x, graph = torch.randn(5, 70, device="chip"), torch.chip.Graph()
    function(x)
    with torch.chip.graph(graph):
        out = function(x)
    x.normal_()
    graph.replay()
    torch.testing.assert_close(out.cpu(), torch.softmax(x.cpu() * 3, -1) + 1)


@pytest.mark.full
def test_flex_attention_is_the_template_in_triton() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 90, 32) for _ in range(3)]
    ours = [each.to("chip").requires_grad_() for each in inputs]
    theirs = [each.requires_grad_() for each in inputs]

    def causal(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        return torch.where(query >= key, score, -float("inf"))

    out, sources = run_and_get_code(torch.compile(flex_attention), *ours, score_mod=causal)
    assert "triton_tem_fused" in sources[0]
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    out.square().sum().backward()
    expected.square().sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-3, atol=1e-3)


def models() -> dict[str, Callable[[], Any]]:
    """Small models of five architectures, each with an input."""
    import transformers as hf

    ids = torch.randint(100, (3, 19))
    text = {"input_ids": ids, "labels": ids}
    sizes: dict[str, Any] = {
        "vocab_size": 100,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    llama = hf.LlamaConfig(**sizes, intermediate_size=90, num_key_value_heads=2)
    gpt2 = hf.GPT2Config(vocab_size=100, n_embd=48, n_layer=2, n_head=4, n_positions=32)
    bert = hf.BertConfig(**sizes, intermediate_size=90, max_position_embeddings=32)
    t5 = hf.T5Config(
        vocab_size=100, d_model=48, d_kv=12, d_ff=90, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    vit = hf.ViTConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=90,
        image_size=24,
        patch_size=8,
    )
    image = {"pixel_values": torch.randn(3, 3, 24, 24), "labels": torch.randint(2, (3,))}
    return {
        "llama": lambda: (hf.LlamaForCausalLM(llama), text),
        "gpt2": lambda: (hf.GPT2LMHeadModel(gpt2), text),
        "bert": lambda: (hf.BertForMaskedLM(bert), text),
        "t5": lambda: (hf.T5ForConditionalGeneration(t5), text),
        "vit": lambda: (hf.ViTForImageClassification(vit), image),
    }


@pytest.mark.full
@pytest.mark.parametrize("name", ("llama", "gpt2", "bert", "t5", "vit"))
def test_models_of_hugging_face_train_as_in_eager_mode(name: str) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, batch = models()[name]()
    model.eval().to("chip")  # no dropout, whose numbers differ
    batch = {key: value.to("chip") for key, value in batch.items()}
    peer = copy.deepcopy(model)
    compiled = torch.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, peer(**batch).logits, rtol=1e-4, atol=1e-4)

    def losses(forward: Any, trained: torch.nn.Module) -> Iterator[float]:
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
        for _ in range(50):
            loss = forward(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()

    ours, theirs = list(losses(compiled, model)), list(losses(peer, peer))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[-1] < ours[0]
