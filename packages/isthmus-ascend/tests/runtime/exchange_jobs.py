"""Jobs for the tests of exchanged products: two ranks of one process, each with an NPU, a stream and a thread."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from tests.runtime import opapi
from tests.runtime.hccl_jobs import Rank, on_ranks
from tests.runtime.runtime import acl, hccl
from tests.runtime.tensors import codes, positive, real, whole

RANKS = 2


def group_of(rank: Rank) -> str:
    """Return the name of the rank's communicator."""
    name = ctypes.create_string_buffer(128)
    hccl.HcclGetCommName(rank.comm, name)
    return name.value.decode()


def call(rank: Rank, name: str, **arguments: Any) -> None:
    """Call a function on the rank's stream and wait for it."""
    row = opapi.ROWS[name]
    with opapi.objects() as made:
        status, executor = opapi.prepare(made, row, opapi.in_order(row, arguments))
        assert status == 0, opapi.message()
        made.destroy()
        phase = getattr(made.library, f"aclnn{name}")
        status = phase(ctypes.c_void_p(None), ctypes.c_uint64(0), executor, ctypes.c_void_p(rank.stream))
        assert status == 0, opapi.message()
    acl.aclrtSynchronizeStream(rank.stream)


def compare(name: str, inputs: list[dict[str, Any]], expected: list[dict[str, torch.Tensor]]) -> None:
    """Call a function on both ranks, each with its inputs, and compare what it writes."""

    def work(rank: Rank) -> None:
        outputs = {key: torch.zeros(value.shape) for key, value in expected[rank.rank].items()}
        call(rank, name, group=group_of(rank), **inputs[rank.rank], **outputs)
        for key, value in expected[rank.rank].items():
            torch.testing.assert_close(outputs[key], value.float(), rtol=1e-4, atol=1e-4)

    on_ranks(work)


def each(make: Callable[[], Any]) -> list[Any]:
    return [make() for _ in range(RANKS)]


def products_reduced() -> None:
    """Sums of products, with bias and a third operand, over the ranks, whole or by parts."""
    inputs = each(lambda: {"x1": real(4, 6), "x2": real(6, 5), "bias": real(5), "reduce_op": "sum"})
    total = sum(i["x1"].double() @ i["x2"].double() + i["bias"] for i in inputs)
    compare("MatmulAllReduce", inputs, [{"out": total}] * RANKS)
    halves = [{"out": half} for half in total.chunk(RANKS)]
    compare("MatmulReduceScatter", inputs, halves)
    compare("MatmulReduceScatterV2", inputs, halves)
    third = each(lambda: real(4, 5))
    more = [i | {"x3": x3} for i, x3 in zip(inputs, third, strict=True)]
    for name in ("MatmulAllReduceV2", "MatmulAllReduceV3"):
        compare(name, more, [{"out": total + third[0] + third[1]}] * RANKS)


def quantised_products_reduced() -> None:
    """Sums of products of codes over the ranks."""
    scale, rows = positive(5) / 100, each(lambda: positive(4))
    inputs = each(
        lambda: {"x1": codes(4, 6), "x2": codes(6, 5), "bias": whole(5).to(torch.int32), "x3": real(4, 5)}
    )
    sums = [i["x1"].double() @ i["x2"].double() + i["bias"] for i in inputs]
    plain = sum(s * scale + i["x3"] for s, i in zip(sums, inputs, strict=True))
    given = [i | {"scale": scale, "reduce_op": "sum"} for i in inputs]
    compare("QuantMatmulAllReduce", given, [{"out": plain}] * RANKS)
    by_row = sum(s * scale * row[:, None] + i["x3"] for s, i, row in zip(sums, inputs, rows, strict=True))
    given = [i | {"row_scale": row} for i, row in zip(given, rows, strict=True)]
    compare("QuantMatmulAllReduceV2", given, [{"out": by_row}] * RANKS)
    for name in ("QuantMatmulAllReduceV3", "QuantMatmulAllReduceV4", "QuantMatmulAllReduceV5"):
        compare(name, given, [{"out": by_row}] * RANKS)
    parts = each(lambda: (real(4, 6), codes(6, 5), positive(5) / 100, real(5)))
    names = "x1", "x2", "antiquant_scale", "antiquant_offset"
    weights = [dict(zip(names, part, strict=True)) | {"reduce_op": "sum"} for part in parts]
    total = sum(x.double() @ ((weight + offset.double()) * scale) for x, weight, scale, offset in parts)
    for name in ("WeightQuantMatmulAllReduce", "WeightQuantMatmulAllReduceV2"):
        compare(name, weights, [{"out": total}] * RANKS)


def products_of_gathered_rows() -> None:
    """Rows of all ranks, or a part of the rows with all columns, times a matrix of each rank."""
    inputs = each(lambda: {"x1": real(4, 6), "x2": real(6, 5), "bias": real(5)})
    gathered = torch.cat([i["x1"] for i in inputs])
    expected = [
        {"out": gathered.double() @ i["x2"].double() + i["bias"], "gather_out": gathered} for i in inputs
    ]
    for name in ("AllGatherMatmul", "AllGatherMatmulV2"):
        compare(name, inputs, expected)
    inputs = each(lambda: {"x1": real(4, 3), "x2": real(5, 6), "bias": real(5), "transpose_x2": True})
    expected = []
    for rank, i in enumerate(inputs):
        joined = torch.cat([other["x1"][2 * rank : 2 * rank + 2] for other in inputs], 1)
        expected.append({"out": joined.double() @ i["x2"].double().T + i["bias"], "alltoall_out": joined})
    for name in ("AlltoAllMatmul", "AlltoAllMatmulV2"):
        compare(name, inputs, expected)


def products_exchanged_by_columns() -> None:
    """Columns of each rank's product go to the rank of their number."""

    def exchanged(products: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        parts = [product.chunk(RANKS, 1) for product in products]
        return [{"out": torch.cat([part[rank] for part in parts])} for rank in range(RANKS)]

    inputs = each(lambda: {"x1": real(3, 6), "x2": real(6, 4), "bias": real(4)})
    products = [i["x1"].double() @ i["x2"].double() + i["bias"] for i in inputs]
    for name in ("MatmulAlltoAll", "MatmulAlltoAllV2"):
        compare(name, inputs, exchanged(products))
    inputs = each(
        lambda: {"x1": codes(3, 6), "x2": codes(6, 4), "scale": positive(4) / 100, "row_scale": positive(3)}
    )
    products = [i["x1"].double() @ i["x2"].double() * i["scale"] * i["row_scale"][:, None] for i in inputs]
    for name in ("QuantMatmulAlltoAll", "QuantMatmulAlltoAllV2"):
        compare(name, inputs, exchanged(products))


def products_of_experts() -> None:
    """Rows go to the experts of all ranks and back; a shared expert stays."""
    experts, sent = 3, [[1, 0, 2, 1, 1, 0], [0, 2, 1, 2, 0, 1]]  # counts by (rank, expert)
    received = [
        [sent[r][rank * experts + e] for r in range(RANKS) for e in range(experts)] for rank in range(RANKS)
    ]
    shared = each(lambda: {"mm_x": real(2, 4), "mm_weight": real(4, 5)})
    weights = each(lambda: real(experts, 4, 6))
    rows = [real(sum(counts), 4) for counts in sent]
    parts = [x.split(counts) for x, counts in zip(rows, sent, strict=True)]
    inputs, expected = [], []
    for rank in range(RANKS):
        by_expert = [torch.cat([parts[r][rank * experts + e] for r in range(RANKS)]) for e in range(experts)]
        out = torch.cat([x.double() @ w.double() for x, w in zip(by_expert, weights[rank], strict=True)])
        mm = shared[rank]["mm_x"].double() @ shared[rank]["mm_weight"].double()
        given = {"gmm_x": rows[rank], "gmm_weight": weights[rank], "ep_world_size": RANKS}
        inputs.append(given | {"send_counts": sent[rank], "recv_counts": received[rank]} | shared[rank])
        expected.append({"out": out, "mm_y": mm, "permute_out": torch.cat(by_expert)})
    for name in ("AlltoAllvGroupedMatMul", "AlltoAllvGroupedMatMulV2"):
        compare(name, inputs, expected)
    back_inputs, back_expected = [], []
    for rank in range(RANKS):
        given = {"gmm_x": expected[rank]["permute_out"], "send_counts": received[rank]}
        back_inputs.append(inputs[rank] | given | {"recv_counts": sent[rank]})
        products = [
            part.double() @ weights[i // experts][i % experts].double() for i, part in enumerate(parts[rank])
        ]
        back_expected.append({"out": torch.cat(products), "mm_y": expected[rank]["mm_y"]})
    for name in ("GroupedMatMulAlltoAllv", "GroupedMatMulAlltoAllvV2"):
        compare(name, back_inputs, back_expected)


def barriers_and_refusals() -> None:
    """Barriers leave their operand alone; an unknown group and lengths that do not divide are refused."""
    x = each(lambda: real(3))
    for name in ("DistributeBarrier", "DistributeBarrierV2"):
        before = [part.clone() for part in x]
        compare(name, [{"x": part, "world_size": RANKS} for part in x], [{}] * RANKS)
        assert all(torch.equal(a, b) for a, b in zip(before, x, strict=True))

    def refused(text: str, **arguments: Any) -> None:
        row = opapi.ROWS["MatmulReduceScatter"]
        given = {"x1": real(3, 4), "x2": real(4, 5), "reduce_op": "sum", "out": torch.zeros(2, 5)}
        with opapi.objects() as made:
            status, _ = opapi.prepare(made, row, opapi.in_order(row, given | arguments))
            assert status == 161002 and text in opapi.message(), opapi.message()

    def work(rank: Rank) -> None:
        refused("group is nobody", group="nobody")
        refused("there are 3 rows to send, expected a multiple of the 2 ranks", group=group_of(rank))
        refused("reduceOp is max, expected sum", group=group_of(rank), reduce_op="max")

    on_ranks(work)
