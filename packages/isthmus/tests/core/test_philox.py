"""ISTHMUS_HOST_RNG=philox: numbers that depend on seed and offset only.

The option holds for a process, so the tests of operators run in children; each child runs many assertions.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

from tests.helpers import children
from tests.helpers.native import compile_text
from tools.repository import CORE

pytestmark = pytest.mark.host("its random numbers")

HARNESS = """
#include "core/philox.h"
extern "C" __attribute__((visibility("default"))) void block(const uint32_t* counter, const uint32_t* key,
                                                             uint32_t* out) {
  const auto words = isthmus::philox::block({counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]});
  for (int i = 0; i < 4; ++i) out[i] = words[i];
}
"""

# The known answers that the authors publish with the paper's code (Random123, kat_vectors).
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library: Path = tmp_path_factory.mktemp("philox") / "philox.so"
    result = compile_text(HARNESS, library, "c++17", first=CORE / "csrc")
    assert result.returncode == 0, result.stderr
    return ctypes.CDLL(str(library))


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(harness: ctypes.CDLL, counter: str, key: str, expected: str):
    out = (ctypes.c_uint32 * 4)()
    harness.block((ctypes.c_uint32 * 4)(*words(counter)), (ctypes.c_uint32 * 2)(*words(key)), out)
    assert list(out) == words(expected)


def child(code: str, **environment: str) -> None:
    children.output("import torch\n" + code, ISTHMUS_HOST_RNG="philox", **environment)


def test_words_of_a_tensor_are_those_of_the_sequence():
    first, second = KNOWN[0][2].split()[1::-1], KNOWN[0][2].split()[:1:-1]
    expected = [int("".join(pair), 16) for pair in (first, second)]
    expected = [value - (1 << 64) if value >> 63 else value for value in expected]
    child(f"""
g = torch.Generator("chip").manual_seed(0)
full = torch.empty(2, dtype=torch.int64, device="chip").random_(-(2**63), None, generator=g)
assert full.tolist() == {expected}, full
""")


def test_offset_counts_what_is_consumed():
    child("""
g = torch.Generator("chip").manual_seed(7)
def consumed(draw):
    before = g.get_offset()
    draw()
    return g.get_offset() - before
new = lambda n, dtype=torch.float32: torch.empty(n, dtype=dtype, device="chip")
assert g.get_offset() == 0
assert consumed(lambda: new(5).uniform_(generator=g)) == 8
assert consumed(lambda: new(8, torch.float64).normal_(generator=g)) == 16
assert consumed(lambda: new(4).bernoulli_(0.5, generator=g)) == 4
assert consumed(lambda: torch.randint(0, 10, (4,), device="chip", generator=g)) == 4
assert consumed(lambda: torch.randint(0, 1 << 40, (4,), device="chip", generator=g)) == 8
assert consumed(lambda: torch.randperm(6, device="chip", generator=g)) == 12
assert consumed(lambda: new(0).uniform_(generator=g)) == 0
assert consumed(lambda: torch.multinomial(torch.ones(5, device="chip"), 2, generator=g)) == 4
g.set_offset(16)
assert g.get_offset() == 16
for bad in (3, 18):
    try:
        g.set_offset(bad)
        raise SystemExit("accepted")
    except RuntimeError as error:
        assert "multiple of 4" in str(error), error
""")


def test_seed_and_offset_reproduce_the_numbers():
    child("""
draws = {
    "rand": lambda g: torch.rand(33, device="chip", generator=g),
    "randn": lambda g: torch.randn(33, device="chip", generator=g),
    "half": lambda g: torch.empty(33, device="chip", dtype=torch.half).normal_(generator=g),
    "complex": lambda g: torch.randn(9, device="chip", dtype=torch.complex64, generator=g),
    "bernoulli": lambda g: torch.full((33,), 0.3, device="chip").bernoulli(generator=g),
    "randint": lambda g: torch.randint(-5, 9, (33,), device="chip", generator=g),
    "randperm": lambda g: torch.randperm(33, device="chip", generator=g),
    "exponential": lambda g: torch.empty(33, device="chip").exponential_(generator=g),
    "log_normal": lambda g: torch.empty(33, device="chip").log_normal_(generator=g),
    "cauchy": lambda g: torch.empty(33, device="chip").cauchy_(generator=g),
    "geometric": lambda g: torch.empty(33, device="chip").geometric_(0.2, generator=g),
    "normal": lambda g: torch.normal(torch.ones(33, device="chip"), 2.0, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(33, device="chip"), 20, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((33,), 4.0, device="chip"), generator=g),
}
for name, draw in draws.items():
    g = torch.Generator("chip").manual_seed(11)
    first, second = draw(g).cpu(), draw(g).cpu()
    assert not torch.equal(first, second), name
    offset = g.get_offset()
    g = torch.Generator("chip").manual_seed(11)
    g.set_offset(offset // 2)
    assert torch.equal(draw(g).cpu(), second), name
    g.manual_seed(12)
    assert not torch.equal(draw(g).cpu(), first), name
""")


def test_state_is_seed_and_offset():
    child("""
torch.manual_seed(5)
torch.rand(10, device="chip")
state = torch.chip.get_rng_state()
assert state.tolist() == [5, *[0] * 7, 12, *[0] * 7], state
first = torch.rand(3, device="chip").cpu()
torch.chip.set_rng_state(state)
assert torch.equal(torch.rand(3, device="chip").cpu(), first)
with torch.random.fork_rng(devices=[0], device_type="chip"):
    torch.rand(100, device="chip")
assert torch.chip.default_generators[0].get_offset() == 16
torch.chip.set_rng_state(state[:8])
assert torch.chip.default_generators[0].get_offset() == 0 and torch.chip.initial_seed() == 5
try:
    torch.chip.set_rng_state(torch.get_rng_state())
    raise SystemExit("accepted")
except RuntimeError as error:
    assert "ISTHMUS_HOST_RNG" in str(error), error
g = torch.Generator("chip").manual_seed(3)
shared, copy = g.graphsafe_get_state(), g.clone_state()
torch.rand(8, device="chip", generator=g)
assert (g.get_offset(), shared.get_offset(), copy.get_offset()) == (8, 8, 0)
copy.graphsafe_set_state(shared)
assert copy.get_offset() == 8
import pickle
assert pickle.loads(pickle.dumps(g)).get_offset() == 8
""")


def test_threads_and_layout_do_not_matter():
    code = """
import hashlib, torch
torch.set_num_threads({threads})
digest = hashlib.sha256()
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    torch.manual_seed(1)
    for draw in ("uniform_", "normal_", "exponential_", "random_"):
        digest.update(getattr(torch.empty(100001, device="chip", dtype=dtype), draw)().float().cpu().numpy())
print(digest.hexdigest())
"""
    found = {children.output(code.format(threads=n), ISTHMUS_HOST_RNG="philox") for n in (1, 3)}
    assert len(found) == 1
    child("""
def draw(tensor, name):
    torch.manual_seed(2)
    return getattr(tensor, name)(*((0.5,) if name == "bernoulli_" else ())).cpu().contiguous()
for name in ("uniform_", "normal_", "bernoulli_", "random_", "exponential_"):
    plain = draw(torch.empty(3, 4, 5, 6, device="chip"), name)
    last = draw(torch.empty(3, 4, 5, 6, device="chip").to(memory_format=torch.channels_last), name)
    sliced = draw(torch.empty(3, 4, 5, 12, device="chip")[..., ::2], name)
    assert torch.equal(plain, last) and torch.equal(plain, sliced), name
""")


def test_a_longer_tensor_begins_with_the_shorter():
    child("""
for name in ("uniform_", "normal_", "exponential_", "cauchy_"):
    torch.manual_seed(2)
    short = getattr(torch.empty(7, device="chip"), name)().cpu()
    torch.manual_seed(2)
    assert torch.equal(getattr(torch.empty(1000, device="chip"), name)().cpu()[:7], short), name
""")


def test_moments():
    child("""
import math
n = 1_000_000
torch.manual_seed(0)
def check(name, x, mean, variance, fourth=None):
    x = x.cpu().double()
    error = 5 * math.sqrt(variance / n)
    assert abs(x.mean().item() - mean) < error, (name, x.mean(), mean, error)
    spread = 5 * variance * math.sqrt((fourth or 3) / n)
    assert abs(x.var().item() - variance) < spread, (name, x.var(), variance, spread)
new = lambda dtype=torch.float32: torch.empty(n, dtype=dtype, device="chip")
for dtype in (torch.float32, torch.float64, torch.float16):
    check("uniform", new(dtype).uniform_(), 0.5, 1 / 12) if dtype != torch.float16 else None
    check("normal", new(dtype).normal_(), 0, 1)
check("normal of 2, 3", new().normal_(2, 3), 2, 9)
check("log_normal", new().log_normal_(0, 0.25), math.exp(1 / 32), (math.exp(1 / 16) - 1) * math.exp(1 / 16), 8)
check("exponential", new().exponential_(2), 0.5, 0.25, 8)
check("geometric", new().geometric_(0.25), 4, 12, 10)
for p in (0.1, 0.5, 0.999):
    check("bernoulli", new().bernoulli_(p), p, p * (1 - p), 1 / (p * (1 - p)))
    each = torch.bernoulli(torch.full((n,), p, device="chip"))
    check("bernoulli of a tensor", each, p, p * (1 - p), 1 / (p * (1 - p)))
check("randint", torch.randint(3, 9, (n,), device="chip"), 5.5, 35 / 12)
check("randint of 64 bits", torch.randint(0, 10**12, (n,), device="chip").double() / 1e12, 0.5, 1 / 12)
check("native_dropout", torch.native_dropout(torch.ones(n, device="chip"), 0.25, True)[0], 1, 1 / 3)
cauchy = new().cauchy_(1, 2).cpu().double()
assert abs(cauchy.median().item() - 1) < 0.02
quartiles = cauchy.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64))
assert (quartiles - torch.tensor([-1.0, 3.0])).abs().max() < 0.05, quartiles
pairs = new().normal_().cpu().view(-1, 2).double()
assert abs((pairs[:, 0] * pairs[:, 1]).mean().item()) < 5 / math.sqrt(n / 2)
""")


def test_uniform_follows_its_distribution():
    child("""
import numpy, scipy.stats
torch.manual_seed(3)
x = torch.rand(20000, device="chip", dtype=torch.float64).cpu().numpy()
assert scipy.stats.kstest(x, "uniform").pvalue > 1e-3
assert scipy.stats.kstest(torch.randn(20000, device="chip").cpu().numpy(), "norm").pvalue > 1e-3
assert scipy.stats.kstest(torch.empty(20000, device="chip").exponential_().cpu().numpy(), "expon").pvalue > 1e-3
first = torch.stack([torch.randperm(4, device="chip") for _ in range(4800)]).cpu()
counts = torch.unique(first, dim=0, return_counts=True)[1]
assert len(counts) == 24 and scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3
""")


def test_limits_of_dtypes_and_ranges():
    child("""
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    x = torch.empty(200000, device="chip", dtype=dtype).uniform_(1, 3).cpu()
    assert x.min() >= 1 and x.max() < 3, dtype
    assert torch.empty(200000, device="chip", dtype=dtype).exponential_().cpu().min() > 0, dtype
for dtype, low, high in ((torch.uint8, 0, 256), (torch.int8, -128, 128), (torch.int16, -7, 9), (torch.bool, 0, 2)):
    x = torch.empty(20000, device="chip", dtype=dtype).random_(low, high).cpu().long()
    assert x.min() >= low and x.max() < high and x.unique().numel() > 1, dtype
assert set(torch.empty(4000, device="chip", dtype=torch.int32).random_().cpu().sign().tolist()) <= {0, 1}
assert torch.empty(100, device="chip").random_().cpu().max() <= 2**24
assert torch.empty(100, device="chip").bernoulli_(1).cpu().min() == 1
assert torch.empty(100, device="chip").bernoulli_(0).cpu().max() == 0
assert sorted(torch.randperm(1000, device="chip").tolist()) == list(range(1000))
for call, words in (
    (lambda: torch.empty(3, device="chip").uniform_(2, 1), "from=2 > to=1"),
    (lambda: torch.empty(3, device="chip").normal_(0, -1), "std >= 0"),
    (lambda: torch.empty(3, device="chip").bernoulli_(1.5), "p to be in"),
    (lambda: torch.bernoulli(torch.full((3,), 2.0, device="chip")), "p to be in"),
    (lambda: torch.empty(3, device="chip").random_(5, 5), "less than 'to'"),
    (lambda: torch.rand(3, device="chip", generator=torch.Generator()), "generator"),
):
    try:
        call()
        raise SystemExit(f"accepted: {words}")
    except RuntimeError as error:
        assert words in str(error), error
""")


def test_training_steps_can_be_repeated():
    child("""
def step(recompute):
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)).chip()
    x = torch.randn(4, 8, device="chip")
    out = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False) if recompute else model(x)
    out.square().sum().backward()
    return [p.grad.cpu() for p in model.parameters()], torch.rand(3, device="chip").cpu()
(plain, after), (again, then) = step(False), step(True)
assert all(torch.equal(a, b) for a, b in zip(plain, again)) and torch.equal(after, then)
stats = torch.chip.dispatch_stats()
assert stats["operators"]["aten::bernoulli_.float"]["route"] == "native", stats["operators"]
assert stats["calls"].get("fallback", 0) == 0
""")


def test_routes_name_philox():
    found = children.output(
        "import json, torch; print(json.dumps(torch.chip.routes()['aten::uniform_']))",
        ISTHMUS_HOST_RNG="philox",
    )
    assert json.loads(found) == ["native", "Philox (ISTHMUS_HOST_RNG=philox)"]
    plain = children.output(
        "import json, torch; print(json.dumps(torch.chip.routes()['aten::uniform_']))", ISTHMUS_HOST_RNG=None
    )
    assert json.loads(plain)[0] == "delegate"


def test_an_unknown_generator_is_refused():
    result = children.run("import torch; torch.rand(3, device='chip')", ISTHMUS_HOST_RNG="xorshift")
    assert result.returncode == 1
    assert "ISTHMUS_HOST_RNG=xorshift" in result.stderr and "mt19937" in result.stderr


def test_without_a_delegate_kernels_take_a_seed_of_philox():
    child(
        """
def draw(offset):
    g = torch.Generator("chip").manual_seed(1)
    g.set_offset(offset)
    return torch.rand(5, device="chip", generator=g).cpu(), g.get_offset()
first, after = draw(8)
assert after == 12 and torch.equal(draw(8)[0], first) and not torch.equal(draw(12)[0], first)
assert torch.chip.dispatch_stats()["calls"]["fallback"] == 3
""",
        ISTHMUS_HOST_DELEGATE="0",
    )


def test_strict_memory_and_the_profiler():
    child(
        """
with torch.profiler.profile() as profile:
    x = torch.rand(5000, device="chip")
assert 0.4 < x.mean().item() < 0.6
assert "aten::uniform_" in [event.name for event in profile.events()]
""",
        ISTHMUS_HOST_STRICT="1",
    )
