"""isthmus.ops.patch("transformers"): same numbers by other operators, and every object put back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus import ops
from isthmus_common import patches
from tests.helpers.ops_checks import on_each_device

transformers = pytest.importorskip("transformers")

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral", "GPT2", "Bert")
LIKE_LLAMA = FAMILIES[:4]


class Counting(TorchDispatchMode):
    """Count the calls of isthmus.ops' operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "isthmus":
            self.calls[function._schema.name.removeprefix("isthmus::")] += 1
        return function(*args, **(kwargs or {}))


def build(family: str, **settings: Any) -> Any:
    """A model of two layers, 64 wide, 4 heads; the same numbers at every call."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 112, "max_position_embeddings": 64}
    if family in LIKE_LLAMA:
        sizes |= {"num_key_value_heads": 2, "head_dim": 16}
    else:
        sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    if family == "GPT2":
        sizes |= {"n_inner": 112, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    if family == "Bert":
        sizes |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    kind = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM"}.get(family, f"{family}ForCausalLM")
    config = getattr(transformers, f"{family}Config")(**(sizes | settings))
    return getattr(transformers, kind)(config)


def ids_for(device: str, rows: int = 2, tokens: int = 24) -> torch.Tensor:
    return torch.randint(3, 96, (rows, tokens), generator=torch.Generator().manual_seed(1)).to(device)


def step(model: Any, ids: torch.Tensor, **others: Any) -> dict[str, torch.Tensor]:
    """Logits, loss and gradients of a forward and a backward, on the CPU."""
    model.zero_grad()
    out = model(input_ids=ids, labels=ids, **others)
    out.loss.backward()
    found = {name: each.grad for name, each in model.named_parameters()}
    return {
        name: each.detach().float().cpu()
        for name, each in {"logits": out.logits, "loss": out.loss, **found}.items()
    }


def close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], share: float) -> None:
    """Compare tensors within a fraction of their largest element."""
    assert ours.keys() == theirs.keys()
    for name, each in theirs.items():
        limit = share * max(each.abs().max().item(), 1e-3)
        torch.testing.assert_close(ours[name], each, rtol=0, atol=limit, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture
def patched() -> Iterator[Any]:
    with ops.patch("transformers") as patched:
        yield patched


def test_the_installed_version_is_fully_patched(patched):
    assert patched.left == {}
    assert {each.feature for each in patched.replaced} == {"ops"}
    assert [each.target for each in patches.active("ops")] == [each.target for each in patched.replaced]
    assert "LlamaRMSNorm.forward: one pass" in str(patched)


@pytest.mark.parametrize("family", FAMILIES)
@on_each_device
def test_forward_and_backward_are_equal(family, device):
    model, ids = build(family).to(device), ids_for(device)
    before = step(model, ids)
    with ops.patch("transformers"), Counting() as counting:
        close(step(model, ids), before, 2e-5)  # built before
        close(step(build(family).to(device), ids), before, 2e-5)  # built after
    assert counting.calls
    after = step(model, ids)
    assert all(torch.equal(after[name], each) for name, each in before.items()), "undone"


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_masks_and_bfloat16(family):
    ids = ids_for("cpu")
    mask = torch.ones_like(ids)
    mask[1, 17:] = 0
    model = build(family)
    before = step(model, ids, attention_mask=mask)
    with ops.patch("transformers"):
        close(step(model, ids, attention_mask=mask), before, 2e-5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = step(model, ids)
        half = step(model.bfloat16(), ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(mixed, step(build(family), ids), 4e-2)
    close(half, step(build(family).bfloat16(), ids), 6e-2)


def test_norms_return_the_dtypes_that_they_did(patched):
    norm = build("Llama").model.norm
    halves = torch.ones(3, 64, dtype=torch.bfloat16)
    cases = [(norm, halves), (norm, halves.float()), (norm.bfloat16(), halves), (norm, halves.float())]
    ours = [module(x).dtype for module, x in cases]
    patched.undo()
    assert ours == [module(x).dtype for module, x in cases]


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_return_the_dtypes_that_they_did(family, patched):
    model, ids = build(family), ids_for("cpu")

    def dtypes() -> list[torch.dtype]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model.float()(input_ids=ids, labels=ids).loss.dtype
        return [mixed, model.bfloat16()(input_ids=ids, labels=ids).loss.dtype]

    ours = dtypes()
    patched.undo()
    assert ours == dtypes()


def test_the_available_operators_are_called(patched):
    with Counting() as counting:
        step(build("Llama"), ids_for("cpu"))
    assert counting.calls == {
        "rms_norm": 3, "add_rms_norm": 2, "rms_norm_backward": 5, "swiglu": 2, "swiglu_backward": 2, "rotary": 4,
        "attention": 2, "attention_backward": 2, "cross_entropy": 1, "cross_entropy_backward": 1,
    }  # fmt: skip


def test_bert_drops_and_normalises_in_one_operator(patched):
    model, ids = build("Bert", hidden_dropout_prob=0.5).train(), ids_for("cpu")
    with Counting() as counting:
        torch.manual_seed(1)
        first = step(model, ids)["logits"]
        second = step(model, ids)["logits"]
    assert counting.calls["dropout_add_norm"] == counting.calls["dropout_add_norm_backward"] == 8
    assert counting.calls["attention"] == 4 and counting.calls["cross_entropy"] == 2
    torch.manual_seed(1)
    assert torch.equal(step(model, ids)["logits"], first) and not torch.equal(first, second)


def test_hooks_of_what_is_folded_in_are_called(patched):
    seen = []
    bert, llama = build("Bert"), build("Llama")
    bert.bert.encoder.layer[0].output.LayerNorm.register_forward_hook(lambda *_: seen.append("bert"))
    llama.model.layers[0].post_attention_layernorm.register_forward_hook(lambda *_: seen.append("llama"))
    for model in (bert, llama):
        step(model, ids_for("cpu"))
    assert seen == ["bert", "llama"]


def test_generation_is_the_same(patched):
    model = build("Llama").eval()
    arguments = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    ours = model.generate(ids_for("cpu", 1, 5), **arguments)
    patched.undo()
    assert torch.equal(ours, model.generate(ids_for("cpu", 1, 5), **arguments))


def trainer_losses(folder: Any) -> list[float]:
    """Losses of three steps of Trainer over rows of 24 tokens, of which one is never a target."""
    rows = [{"input_ids": ids, "labels": ids} for ids in ids_for("cpu", 12)]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1,
        use_cpu=True, disable_tqdm=True, save_strategy="no", report_to=[],
    )  # fmt: skip
    trainer = transformers.Trainer(build("Llama"), arguments, train_dataset=rows)
    trainer.train()
    return [float(each["loss"]) for each in trainer.state.log_history if "loss" in each]


def test_trainer_counts_the_same_targets(patched, tmp_path):
    pytest.importorskip("accelerate")
    ours = trainer_losses(tmp_path)
    patched.undo()
    assert len(ours) == 3 and ours == pytest.approx(trainer_losses(tmp_path), rel=1e-4)


def test_every_loss_over_the_next_tokens_is_replaced(patched):
    from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

    assert ForCausalLMLoss not in LOSS_MAPPING.values()
    assert LOSS_MAPPING["ForConditionalGeneration"] is LOSS_MAPPING["ForCausalLM"]


def namespaces() -> dict[str, dict[str, Any]]:
    """Return all attributes of modules and classes that patches may change."""
    found = {}
    touched = (
        "transformers.models.",
        "transformers.loss.",
        "transformers.modeling_utils",
        "transformers.trainer",
    )
    for name, module in sys.modules.items():
        if name.startswith(touched):
            found[name] = dict(vars(module))
            for key, each in vars(module).items():
                if isinstance(each, type):
                    found[f"{name}.{key}"] = dict(vars(each))
    registries = {
        "attention": transformers.modeling_utils.AttentionInterface._global_mapping,
        "losses": transformers.loss.loss_utils.LOSS_MAPPING,
    }
    return found | {name: dict(each) for name, each in registries.items()}


def test_undo_restores_the_same_objects():
    ops.patch("transformers").undo()  # imports what it needs
    before = namespaces()
    patched = ops.patch("transformers")
    assert patched.replaced
    patched.undo()
    patched.undo()
    after = namespaces()
    assert before.keys() == after.keys()
    for name, entries in before.items():
        assert entries.keys() == after[name].keys()
        changed = [key for key, value in entries.items() if after[name][key] is not value]
        assert not changed, (name, changed)
    assert patches.active("ops") == []


def test_a_second_patch_replaces_nothing_and_undoes_nothing(patched):
    with ops.patch("transformers") as second:
        assert second.replaced == []
        assert len(second.left) >= len(patched.replaced)
        assert "already replaced" in str(second)
    assert patches.active("ops") == patched.replaced


def test_parts(patched):
    patched.undo()
    with ops.patch("transformers", parts=["norm"]) as norms:
        assert {each.target.rpartition(".")[0][-7:] for each in norms.replaced} == {"RMSNorm"}


def test_moved_modules_are_not_patched_and_reported(monkeypatch):
    from transformers.models.llama import modeling_llama
    from transformers.models.qwen2 import modeling_qwen2

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", lambda self, x, other: x)
    monkeypatch.delattr(modeling_qwen2, "Qwen2MLP")
    with ops.patch("transformers") as patched:
        left = {target.removeprefix("transformers.models."): why for target, why in patched.left.items()}
        assert "its parameters are (self, x, other)" in left["llama.modeling_llama.LlamaRMSNorm.forward"]
        assert "is not replaced" in left["llama.modeling_llama.LlamaDecoderLayer.forward"]
        assert "Qwen2MLP does not exist" in left["qwen2.modeling_qwen2.Qwen2MLP.forward"]
        assert any("MistralMLP" in each.target for each in patched.replaced)


def test_a_removed_entry_and_a_moved_module(monkeypatch):
    from transformers.loss import loss_utils

    monkeypatch.delitem(loss_utils.LOSS_MAPPING, "ForMaskedLM")
    monkeypatch.delattr(transformers.modeling_utils, "AttentionInterface")
    with ops.patch("transformers") as patched:
        assert "no such function" in patched.left["transformers.loss.loss_utils.LOSS_MAPPING['ForMaskedLM']"]
        assert "cannot import name 'AttentionInterface'" in patched.left["transformers, attention"]


def test_unpatchable_targets_are_refused():
    with pytest.raises(ValueError, match="unknown library 'diffusers'; expected transformers"):
        ops.patch("diffusers")
    with pytest.raises(ValueError, match="unknown part 'norms'; expected one of norm, "):
        ops.patch("transformers", parts=["norms"])
    with pytest.raises(ValueError, match="unknown part 'norms'"):
        ops.patch("transformers", parts="norms")


def losses(steps: int, dtype: torch.dtype, family: str = "Llama") -> torch.Tensor:
    """Return losses of a deterministic run on learnable text."""
    model = build(family).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(3)
    found = []
    for _ in range(steps):
        first = torch.randint(3, 96, (4, 1), generator=generator)
        ids = 3 + (first + torch.arange(24) * 7) % 93
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return torch.tensor(found)


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-3), (torch.bfloat16, 1e-2)])
def test_200_steps_of_training_give_the_same_losses(dtype, limit):
    plain = losses(200, dtype)
    with ops.patch("transformers"):
        ours = losses(200, dtype)
    assert plain[-1] < plain[0] / 2
    assert ((ours - plain).abs() / plain).mean() < limit
