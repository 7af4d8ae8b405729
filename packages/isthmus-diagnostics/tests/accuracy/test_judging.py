"""Verdicts on constructed dumps: equal and right jobs are not accused, and an accusation names a rank."""

import json
import math
from itertools import count

import pytest
import torch

import isthmus_diagnostics.accuracy
from isthmus_diagnostics.accuracy import report
from isthmus_diagnostics.accuracy.comparing import Comparison, compare
from isthmus_diagnostics.accuracy.divergence import Search
from isthmus_diagnostics.accuracy.judging import judge_pairs
from isthmus_diagnostics.accuracy.pairing import pairs
from isthmus_diagnostics.accuracy.reading import Content, Place, Rank, Recorded
from isthmus_diagnostics.accuracy.statistics import compose, read


class Made(Rank):
    """A dump of one rank, made call by call; tensors have statistics only."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(None, number, {})  # type: ignore[arg-type]
        self._numbers = count()

    def tensor(self, value: torch.Tensor | float, unwritten: bool = False, name: str = "") -> Content:
        value = torch.as_tensor(value)
        (found,) = read(compose(value, False)[None], [value.numel()], False)
        content = Content(
            next(self._numbers),
            str(value.dtype)[6:],
            tuple(value.shape),
            found,
            self,
            name=name,
            unwritten=unwritten,
        )
        self.contents[content.number] = content
        return content

    def call(self, operator: str, inputs: dict, result=None, phase="forward", line="train.py:1", **arguments):
        """Add a call; return its result."""
        outputs = {} if result is None else {"output 0": result}
        place = Place(arguments.pop("step", 0), phase, "", 0)
        call = Recorded(
            len(self.calls), place, operator, line, "", arguments, inputs, outputs, rank=self.number
        )
        self.calls.append(call)
        return result


def first(a: list[Rank], b: list[Rank]) -> Comparison:
    rows = judge_pairs(pairs(a, b))
    return Comparison(None, None, (len(a), len(b)), rows, Search(rows).first_difference())  # type: ignore[arg-type]


X = torch.arange(1.0, 33.0).reshape(4, 8)


# ---- Memory that was not written


def bucket(garbage: float, reads: str) -> list[Rank]:
    rank = Made()
    memory = rank.tensor(X * garbage, unwritten=True)
    if reads == "view":
        rank.call(
            "aten::as_strided", {"self": memory}, rank.tensor(X[:2] * garbage, unwritten=True), size=[2, 8]
        )
    elif reads == "send":
        rank.call("c10d::send", {"tensors[0]": memory})
    else:
        rank.call("aten::add.Tensor", {"self": memory}, rank.tensor(X * garbage + 1))
    return [rank]


@pytest.mark.parametrize(("reads", "accused"), [("view", False), ("send", False), ("add", True)])
def test_unwritten_memory_matters_to_what_computes_from_it(reads, accused):
    found = first(bucket(0.0, reads), bucket(2.5, reads))
    assert (found.guilty is not None) is accused
    if accused:
        assert "self (memory that no call has written) differs by 1" in found.guilty.reason


@pytest.mark.parametrize("write", ["none", "part", "all", "parts", "strided", "copy", "copied"])
def test_parts_that_calls_have_written_are_known(write, tmp_path):
    with isthmus_diagnostics.accuracy.dump(tmp_path):
        memory = torch.empty(4, 6, device="chip")
        if write in ("part", "parts"):
            memory[:2].copy_(torch.ones(2, 6, device="chip"))
        if write == "parts":
            memory[2:].zero_()
        if write == "all":
            memory.fill_(2)
        if write == "strided":
            memory[:, ::2].zero_()
        if write == "copy":
            memory = memory.to("cpu")
        if write == "copied":
            memory = memory.fill_(1).to("cpu")
        memory.view(-1).unsqueeze(0)
    lines = [json.loads(line) for line in (tmp_path / "rank-0" / "index.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if line.get("operator") == "aten::unsqueeze")
    tensors = {line["tensor"]: line for line in lines if "tensor" in line}
    assert tensors[last["inputs"]["self"]].get("unwritten", False) is (
        write not in ("all", "parts", "copied")
    )


# ---- Another order


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("lines", ["same", "own"])
@pytest.mark.parametrize("operator", ["aten::detach", "aten::zero_"])
def test_calls_in_another_order_are_paired_by_what_they_read(ranks, lines, operator):
    def job(order):
        found = []
        for number in range(ranks):
            rank = Made(number)
            for i in order if number == ranks - 1 else sorted(order):
                line = f"train.py:{i if lines == 'own' else 1}"
                part = X[: 1 + i % 2] * (i + 1 + number)
                if operator == "aten::zero_":  # reads nothing
                    rank.call(operator, {}, rank.tensor(part * 0), "backward", line)
                else:
                    rank.call(operator, {"self": rank.tensor(part)}, rank.tensor(part), "backward", line)
            found.append(rank)
        return found

    for order in ([1, 0, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        assert first(job([0, 1, 2, 3]), job(order)).counts == {"equal": 4}


def test_a_call_of_one_job_alone_displaces_no_other():
    def job(casts):
        rank = Made()
        target, logits = rank.tensor(torch.arange(4)), rank.tensor(X.bfloat16())
        rank.call("aten::_to_copy", {"self": target}, rank.tensor(torch.arange(4)), dtype="int64")
        if casts:
            rank.call("aten::_to_copy", {"self": logits}, rank.tensor(X), dtype="float32")
        rank.call("aten::nll", {"self": rank.tensor(X)}, rank.tensor(1.5))
        return [rank]

    for sides in ((job(False), job(True)), (job(True), job(False))):
        assert first(*sides).guilty is None


# ---- Factors of the loss


def training(scale=1.0, unscale="", clip=False, fault=1.0, steps=2):
    """A job whose loss is multiplied by a number; `fault` multiplies the gradient of one layer of three."""
    rank = Made()
    for step in range(steps):
        root = rank.tensor(1.0)
        if scale != 1.0:
            root = rank.call(
                "aten::mul.Tensor", {"self": root}, rank.tensor(scale), "backward", "train.py:9", step=step
            )
        gradient = root
        ready = []
        for layer in range(3):
            factor = scale * (fault if layer else 1.0)
            value = rank.tensor(X * (layer + 1) * factor)
            name = ("aten::nll_backward", "aten::relu_backward", "aten::mm_backward")[layer]
            gradient = rank.call(name, {"grad": gradient}, value, "backward", f"model.py:{layer}", step=step)
            ready.append((value, X * (layer + 1) * factor))
        done = []
        for value, numbers in ready:
            rest, inputs = numbers / scale, {"self": value}
            if unscale == "amp":
                inputs = {"self[0]": value, "inv_scale": rank.tensor(1 / scale)}
                name = "aten::_amp_foreach_non_finite_check_and_unscale_"
                done.append((rank.call(name, inputs, rank.tensor(rest), step=step), rest))
            elif unscale == "hand":
                made = rank.call("aten::div_.Scalar", inputs, rank.tensor(rest), step=step, other=scale)
                done.append((made, rest))
            else:
                done.append((value, numbers))
        if clip:
            norm = math.hypot(*(float(numbers.norm()) for _, numbers in done))
            inputs = {f"self[{i}]": value for i, (value, _) in enumerate(done)}
            rank.call("aten::_foreach_norm", inputs, rank.tensor(norm), line="train.py:13", step=step)
            done = [
                (rank.call("aten::mul_", {"self": value}, rank.tensor(n / norm), step=step), n / norm)
                for value, n in done
            ]
        for layer, (value, numbers) in enumerate(done):
            inputs = {"parameter": rank.tensor(X, name=f"w{layer}"), "gradient": value}
            rank.call(
                "optimizer::SGD", inputs, rank.tensor(X - numbers), "optimizer", f"opt:{layer}", step=step
            )
    return [rank]


RIGHT = {
    "none": {},
    "amp": {"scale": 1024.0, "unscale": "amp"},
    "amp 65536": {"scale": 65536.0, "unscale": "amp"},
    "by hand": {"scale": 256.0, "unscale": "hand"},
    "accumulation": {"scale": 0.25, "unscale": "hand"},
}


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("a", RIGHT)
@pytest.mark.parametrize("b", RIGHT)
def test_a_factor_of_the_loss_that_is_taken_out_is_no_difference(a, b, clip):
    found = first(training(**RIGHT[a], clip=clip), training(**RIGHT[b], clip=clip))
    assert found.guilty is None, report.describe_first_difference(found.guilty)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("a", RIGHT)
@pytest.mark.parametrize("b", RIGHT)
def test_a_wrong_factor_of_one_layer_is_named(a, b, clip):
    found = first(training(**RIGHT[a], clip=clip), training(**RIGHT[b], clip=clip, fault=1.5))
    assert (found.guilty.call.operator, found.guilty.call.place.step) == ("aten::relu_backward", 0)


@pytest.mark.parametrize("clip", [False, True])
def test_a_factor_that_stays_in_the_gradients_is_named(clip):
    found = first(training(clip=clip), training(scale=2.0, clip=clip))
    assert found.guilty.call.operator == "aten::mul.Tensor"  # clipping would hide it from the optimizer
    assert found.guilty.call.place.phase == "backward"


# ---- Parts of ranks


def chunked(world, wrong=False, operator="aten::split.Tensor", dim=1, takes=lambda rank: rank):
    """Each rank takes its part of one tensor."""
    found = []
    for number in range(world):
        rank = Made(number)
        parts = X.chunk(world, dim)
        whole = rank.tensor(X)
        taken = [rank.tensor(part) for part in parts]
        call = Recorded(
            0, Place(0, "forward", "", 0), operator, "train.py:1", "", {"split_size": 8 // world},
            {"self": whole}, {f"output {i}": each for i, each in enumerate(taken)}, rank=number,
        )  # fmt: skip
        rank.calls.append(call)
        mine = takes(number)
        rank.call("aten::exp", {"self": taken[mine]}, rank.tensor(parts[mine].log()), line="train.py:2")
        found.append(rank)
    return found


@pytest.mark.parametrize(
    "operator", ["split.Tensor", "chunk", "split_with_sizes", "tensor_split.sections", "unbind.int"]
)
@pytest.mark.parametrize(("world", "dim"), [(2, 1), (4, 0), (4, 1)])
def test_parts_that_ranks_take_are_no_difference(operator, world, dim):
    jobs = [chunked(n, operator=f"aten::{operator}", dim=dim) for n in (1, world)]
    for sides in (jobs, jobs[::-1]):
        assert first(*sides).guilty is None


def test_a_wrong_part_is_named():
    found = first(chunked(1), chunked(2, takes=lambda rank: 0))
    assert found.guilty.call.operator == "aten::split.Tensor"
    assert "the parts that the ranks take are not those of self of aten::exp" in found.guilty.reason


def test_a_missing_reduction_is_named_at_its_user():
    def job(world):
        found = []
        for number in range(world):
            rank = Made(number)
            term = X if world == 1 else X * (0.25 if number else 0.75) + (number - 0.5)
            gradient = rank.call("aten::sum", {"self": rank.tensor(X)}, rank.tensor(term), "backward")
            inputs = {"parameter": rank.tensor(X, name="norm.weight"), "gradient": gradient}
            rank.call("optimizer::SGD", inputs, rank.tensor(X - 0.1 * term), "optimizer")
            found.append(rank)
        return found

    found = first(job(1), job(2))
    assert found.guilty.call.operator == "optimizer::SGD"
    assert "gradient is right only if the ranks' parts of it are put together" in found.guilty.reason


# ---- Ranks


def replicas(world=2, wrong=(), what="result", extra=False):
    found = []
    for number in range(world):
        rank = Made(number)
        bad = number in wrong
        weight = rank.tensor(X * (1.5 if bad and what == "data" else 1), name="w")
        if bad and extra:
            weight = rank.call("aten::add_.Scalar", {"self": weight}, rank.tensor(X * 1.5), line="train.py:5")
            bad = True
        value = 2.0 if bad else 1.0
        arguments = {"alpha": value} if what == "argument" else {}
        rank.call("aten::mul", {"self": weight}, rank.tensor(X * value), line="train.py:7", **arguments)
        found.append(rank)
    return found


@pytest.mark.parametrize("what", ["result", "argument", "data", "extra"])
@pytest.mark.parametrize(("world", "wrong"), [(2, (1,)), (2, (0,)), (3, (1, 2)), (2, (0, 1)), (4, (2,))])
def test_every_verdict_names_the_ranks(what, world, wrong):
    right, faulty = replicas(world), replicas(world, wrong, what, what == "extra")
    if what == "argument":
        right = replicas(world, (), what)
    for sides in ((right, faulty), (faulty, right)):
        found = first(*sides)
        assert found.guilty.ranks == wrong
        assert found.guilty.call.rank == wrong[0]
        ranks = ", ".join(map(str, wrong))
        assert (
            f", rank{'s' * (len(wrong) > 1)} {ranks}, step 0"
            in report.describe_first_difference(found.guilty).splitlines()[0]
        )
        document = report._guilty_as_dict(found.guilty)
        assert document["ranks"] == wrong


def test_a_replica_is_named_against_one_rank():
    found = first(replicas(1), replicas(3, (2,)))
    assert found.guilty.ranks == (2,)


def test_jobs_of_one_rank_have_no_rank_in_the_text(tmp_path):
    for name, eps in (("a", 1e-5), ("b", 1e-3)):
        with isthmus_diagnostics.accuracy.dump(tmp_path / name):
            torch.nn.functional.layer_norm(X, (8,), eps=eps)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.guilty.ranks == (0,)
    assert "rank" not in report.describe_first_difference(found.guilty)
