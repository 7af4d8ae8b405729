"""Empty tensors and lists, and sizes that do not divide: an error of the call or an empty result, never a crash."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime import opapi


def attention(shape: tuple[int, ...], heads: int, layout: str = "BSH", **others: Any) -> None:
    query, key = torch.zeros(shape, dtype=torch.float16), torch.ones(2, 4, 2, dtype=torch.float16)
    given = {"query": query, "key": key, "value": key, "scale": 1.0, "keep_prob": 1.0} | others
    out = torch.zeros(shape)
    opapi.named("FlashAttentionScore", head_num=heads, input_layout=layout, out=out, **given)


def decode(query: torch.Tensor, **others: Any) -> None:
    cache = torch.zeros(4, 128, 512, dtype=torch.float16)
    given = {"key": [cache], "value": [cache], "num_heads": 8, "input_layout": "BSH", "block_size": 128}
    given |= others
    opapi.named("IncreFlashAttentionV4", query=query, scale=1.0, out=torch.zeros_like(query), **given)


def pooled_gradient(grad: tuple[int, ...], input: tuple[int, ...]) -> None:
    out = torch.zeros(input)
    opapi.named("AdaptiveAvgPool2dBackward", grad_output=torch.ones(grad), self=torch.ones(input), out=out)


half = torch.zeros(0, 1, 512, dtype=torch.float16)
one = torch.zeros(1, 1, 512, dtype=torch.float16)
table = torch.zeros(1, 4, dtype=torch.int32)
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "an empty query with more heads than columns": (lambda: attention((2, 0, 2), 8), "head of query is 0"),
    "more heads than columns": (lambda: attention((2, 4, 2), 8), "[8, -1] don't multiply up"),
    "no heads": (lambda: attention((2, 4, 2), 0), "headNum is 0"),
    "a query without columns": (lambda: attention((2, 4, 0), 1), "head of query is 0"),
    "an empty SBH query": (lambda: attention((0, 2, 2), 8, "SBH"), "head of query is 0"),
    "a packed query without lengths": (
        lambda: attention((4, 1, 2), 1, "TND", key=torch.ones(4, 1, 2).half(), value=torch.ones(4, 1, 2).half()),
        "actualSeqQLen has 0 elements",
    ),
    "an empty batch over blocks": (lambda: decode(half, block_table=table), "query, key or value is empty"),
    "an empty batch": (lambda: decode(half), "query, key or value is empty"),
    "blocks without lengths": (lambda: decode(one, block_table=table), "actualSeqLengthsKv is not"),
    "no keys": (lambda: decode(one, key=[], value=[]), "query, key or value is empty"),
    "an empty gradient of pooling": (lambda: pooled_gradient((0, 3, 2, 3), (2, 3, 5, 7)), "a gradient has shape"),
    "pooling of empty images": (lambda: pooled_gradient((2, 3, 2, 3), (2, 3, 0, 7)), "a gradient has shape"),
    "gradients of another batch": (lambda: pooled_gradient((1, 3, 2, 3), (2, 3, 5, 7)), "a gradient has shape"),
    "statistics of other channels": (
        lambda: opapi.named(
            "BatchNorm", input=torch.ones(4, 3, 5), running_mean=torch.ones(2), running_var=torch.ones(3), eps=1e-5,
            out0=torch.ones(4, 3, 5), out1=torch.ones(3), out2=torch.ones(3),
        ),
        "an element for each channel",
    ),
    "rows of a layer norm": (
        lambda: opapi.named(
            "LayerNormBackward", grad_out=torch.ones(2, 4), input=torch.ones(2, 4), normalized_shape=[4],
            mean_refined=torch.ones(1, 1), variance_refined=torch.ones(2, 1), output_mask=[True, True, True],
            grad=torch.ones(2, 4), grad_weight=torch.ones(4), grad_bias=torch.ones(4),
        ),
        "a statistic has shape [1, 1]",
    ),
    "groups without ends": (
        lambda: opapi.named(
            "GroupedMatmulFinalizeRoutingV2", x=torch.ones(4, 8, dtype=torch.int8),
            weight=torch.ones(2, 8, 6, dtype=torch.int8), scale=torch.ones(2, 6), row_scale=torch.ones(4),
            row_index=torch.zeros(4, dtype=torch.int64), out=torch.ones(2, 6),
        ),
        "groupList has 0 elements, expected at least one",
    ),
    "a momentum of another shape": (
        lambda: opapi.named(
            "FusedSgd", params=[torch.ones(4)], grads=[torch.ones(0)], momentum_buffer_list=[torch.ones(4)], lr=0.1
        ),
        "grads 0 has shape [0]",
    ),
    "a scale without groups": (
        lambda: opapi.named(
            "WeightQuantBatchMatmulV2", x=torch.ones(3, 4, dtype=torch.float16),
            weight=torch.ones(4, 5, dtype=torch.int8), antiquant_scale=torch.ones(0, 5, dtype=torch.float16),
            antiquant_offset=torch.ones(0, 5, dtype=torch.float16), out=torch.ones(3, 5, dtype=torch.float16),
        ),
        "0 groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_degenerate_arguments_are_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=r"^161002") as raised:
        call()
    assert message in str(raised.value)


def test_indices_beyond_the_classes_are_errors_of_the_stream() -> None:
    for index in (-1, 4, 1 << 30):
        indices = torch.tensor([0, index])
        with pytest.raises(ValueError, match=f"{index}.*expected 0 to 3"):
            opapi.named(
                "EmbeddingDenseBackward", grad_output=torch.ones(2, 3), indices=indices, num_weights=4,
                padding_idx=-1, scale_grad_by_freq=True, out=torch.ones(4, 3),
            )  # fmt: skip
        with pytest.raises(ValueError, match=f"{index}.*expected 0 to 3"):
            opapi.named(
                "NLLLoss2dBackward", grad_output=torch.ones([]), self=torch.ones(1, 4, 1, 2),
                target=indices.view(1, 1, 2), weight=torch.ones(4), reduction=1, ignore_index=-100,
                total_weight=torch.ones([]), grad=torch.ones(1, 4, 1, 2),
            )  # fmt: skip


def test_queries_and_keys_that_a_batch_leaves_out_give_zeros() -> None:
    x = torch.ones(2, 4, 5, 8, dtype=torch.float16)
    for lengths, kept in (([0, 5], 1), ([0, 0], 2)):
        out = torch.full_like(x, 7)
        opapi.named(
            "FusedInferAttentionScoreV4", query=x, key=[x], value=[x], actual_seq_lengths_kv=lengths, num_heads=4,
            num_key_value_heads=4, input_layout="BNSD", scale=1.0, pre_tokens=1 << 30, next_tokens=1 << 30, out=out,
        )  # fmt: skip
        assert not out[:kept].any()
        assert torch.equal(out[kept:], x[kept:])


def test_clamp_computes_in_the_promoted_dtype() -> None:
    x = torch.tensor([0, 5])
    for name, given, expected in (
        ("Clamp", {"min": 0.5, "max": 1.5}, [0.5, 1.5]),
        ("ClampMin", {"min": 1.5}, [1.5, 5.0]),
        ("ClampMaxTensor", {"max": torch.tensor(1.5)}, [0.0, 1.5]),
        ("ClampTensor", {"min": torch.tensor([1, 2]), "max": torch.tensor([2.5])}, [1.0, 2.5]),
    ):
        for dtype in (torch.float32, torch.float16, torch.float64):
            out = torch.zeros(2, dtype=dtype)
            opapi.named(name, self=x, out=out, **given)
            assert out.tolist() == expected
        with pytest.raises(
            ValueError, match="result type Float can't be cast to the desired output type Long"
        ):
            opapi.named(name, self=x, out=torch.zeros(2, dtype=torch.int64), **given)
