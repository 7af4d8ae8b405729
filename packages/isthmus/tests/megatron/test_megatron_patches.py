"""``import isthmus.megatron``: its patches are listed, checked against Megatron's signatures, and undone."""

import subprocess
import sys

import pytest

from tests.helpers.children import output, run, start_module


def test_explain_lists_every_patch():
    child = start_module("isthmus", "megatron", "explain")
    text, error = child.communicate()
    assert child.returncode == 0, text + error
    assert text.startswith("megatron-core 0.16.1: ")
    for name in (
        "WrappedTorchNorm.__new__",
        "DotProductAttention.forward",
        "FusedLayerNorm.__new__",
        "sys.path: apex",
    ):
        assert name in text


@pytest.mark.full
def test_undo_restores_what_was_there():
    assert output(
        """
        import warnings; warnings.simplefilter("ignore")
        import isthmus.megatron as adaptor, torch
        from isthmus_common import patches
        from megatron.core.fusions.fused_layer_norm import FusedLayerNorm
        from megatron.core.transformer.dot_product_attention import DotProductAttention
        from megatron.core.transformer.torch_norm import WrappedTorchNorm
        from megatron.core.transformer.transformer_config import TransformerConfig
        assert DotProductAttention.forward.__wrapped__ and torch.cuda.is_available()
        config = TransformerConfig(
            num_layers=1, hidden_size=8, num_attention_heads=2, sequence_parallel=True, tensor_model_parallel_size=2
        )
        print(type(WrappedTorchNorm(config, 8)).__name__)
        adaptor.undo()
        assert not patches.active("megatron") and not patches.active("shim")
        assert not hasattr(DotProductAttention.forward, "__wrapped__") and not torch.cuda.is_available()
        print(type(FusedLayerNorm(config, 8)).__name__)
        try:
            WrappedTorchNorm(config, 8)
        except AssertionError:
            print("refused again")
        """
    ).split("\n") == ["Norm", "FusedLayerNorm", "refused again"]


@pytest.mark.full
def test_a_function_with_a_changed_signature_is_reported_and_not_patched():
    done = run(
        """
        import warnings; warnings.simplefilter("ignore")
        from isthmus.megatron import adaptor, table
        for index, each in enumerate(table.REPLACEMENTS):
            if each.name == "DotProductAttention.forward":
                changed = each._replace(signatures=("000000000000",))
        from megatron.core.transformer.dot_product_attention import DotProductAttention
        before = DotProductAttention.forward
        adaptor._apply(changed)
        adaptor._apply(changed._replace(name="DotProductAttention.gone"))
        assert DotProductAttention.forward is before
        assert not hasattr(DotProductAttention, "gone")
        print(*adaptor.unapplied_patches(), sep="\\n")
        """
    )
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(".")[2] for line in done.stdout.split()] == ["forward", "gone"]
    first, second = (line for line in done.stderr.splitlines() if line.startswith("isthmus: megatron"))
    assert "is not patched: its signature is (self, query, key, value, attention_mask" in first
    assert "the patch was written for 000000000000" in first and "ignores context parallelism" in first
    assert "no such function in this version" in second


@pytest.mark.full
def test_missing_or_broken_modules_are_reported():
    said = output(
        """
        import importlib.abc, sys, warnings; warnings.simplefilter("ignore")
        import isthmus.megatron
        from isthmus.megatron.explain import explanation
        GONE, BROKEN = "megatron.core.datasets.utils", "megatron.core.transformer.torch_norm"
        class Finder(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == GONE:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
                if name == BROKEN:
                    raise ModuleNotFoundError("No module named 'six'", name="six")
        import megatron.core
        for name in (GONE, BROKEN):
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, Finder())
        text, fits = explanation()
        print(fits, *text.rpartition("match this version:\\n")[2].splitlines(), sep="\\n")
        """
    )
    assert said.splitlines() == [
        "False",
        "  megatron.core.transformer.torch_norm.WrappedTorchNorm.__new__: "
        "its module cannot be imported: No module named 'six'",
        "  megatron.core.datasets.utils.compile_helpers: no such module in this version",
    ]


def test_megatron_before_the_adaptor_is_refused():
    done = run("import megatron.core\nimport isthmus.megatron")
    assert done.returncode == 1
    assert "isthmus.megatron must be imported before megatron.core" in done.stderr


def test_run_megatron_needs_no_line_in_the_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "from megatron.core.transformer.dot_product_attention import DotProductAttention\n"
        "import isthmus_common.patches\n"
        "print(DotProductAttention.forward.__wrapped__ is not None, torch.zeros(1).cuda().device)\n"
    )
    command = [sys.executable, "-W", "ignore", "-m", "isthmus", "run", "--quiet", "--megatron", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout == "True cuda:0\n", done.stderr


def test_context_parallelism_refuses_what_it_does_not_compute():
    assert output(
        """
        import types
        from isthmus.ops.context_parallel import check
        config = types.SimpleNamespace(window_size=None)
        check(config, None, 0.0)
        for kind, dropout, window in (("a2a+p2p", 0.0, None), ("p2p", 0.1, None), ("p2p", 0.0, (8, 0))):
            config.window_size = window
            try:
                check(config, kind, dropout)
            except ValueError as error:
                print(error)
        """
    ).split("\n") == [
        "--cp-comm-type a2a+p2p: expected one of p2p, all_gather, a2a",
        "context parallelism does not support attention dropout 0.1; set --attention-dropout 0",
        "context parallelism does not support a sliding window; omit --window-size",
    ]


def test_context_parallelism_refuses_tokens_without_a_zigzag():
    assert output(
        """
        import torch, torch.distributed as dist
        from isthmus.ops.context_parallel import KINDS, over_ranks
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for kind in KINDS:
            q, k, v = torch.randn(3, 4, 1, 2, 8).unbind()
            out = over_ranks(kind, q, k, v, dist.group.WORLD, 0.5)
            batch_first = (each.permute(1, 2, 0, 3) for each in (q, k, v))
            expected = torch.nn.functional.scaled_dot_product_attention(*batch_first, is_causal=True, scale=0.5)
            torch.testing.assert_close(out, expected.permute(2, 0, 1, 3))
            try:
                over_ranks(kind, q[:3], k[:3], v[:3], dist.group.WORLD, 0.5)
            except ValueError as error:
                print(error)
        """
    ).split("\n") == 3 * [
        "context parallelism: 3 tokens on a rank cannot be split into two chunks; "
        "the sequence length must be a multiple of 2"
    ]
