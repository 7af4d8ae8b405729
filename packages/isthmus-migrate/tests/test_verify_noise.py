"""``isthmus migrate verify``: differences judged by the effect of rounding noise on the original."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus_migrate.verify import text_comparison
from isthmus_migrate.verify.answers import Answers
from isthmus_migrate.verify.compare import compare
from isthmus_migrate.verify.limits import EXACT, Reference, distance, limits
from isthmus_migrate.verify.noise import Noise
from isthmus_migrate.verify.record import Record
from isthmus_migrate.verify.run import Run, Side
from isthmus_migrate.verify.tally import Tally

# A transformer whose key biases have the gradient zero, up to rounding. On the chip, sums are taken in another order.
# The command line names the mistake that is made there.
SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn

mistake, precision = sys.argv[1], getattr(torch, sys.argv[2])
torch.manual_seed(3)
device = torch.device("cuda")
here = torch.ones(1, device=device).device.type == "chip"


def in_another_order(x, weight, bias=None):
    half = x.shape[-1] // 2 + 1
    y = x[..., half:] @ weight[:, half:].T + x[..., :half] @ weight[:, :half].T
    return y if bias is None else y + bias


if here:
    F.linear = in_another_order


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        nn.init.zeros_(self.key.bias)

    def forward(self, x):
        y = self.norm(x)
        heads = [each(y).unflatten(-1, (4, 8)).transpose(1, 2) for each in (self.query, self.key, self.value)]
        x = x + F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        return x if here and mistake == "layer" else x + self.mlp(x)


model = nn.Sequential(nn.Embedding(64, 32), Block(), Block(), nn.Linear(32, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1.05e-3 if here and mistake == "rate" else 1e-3)
autocast = torch.autocast("cuda", dtype=precision, enabled=precision != torch.float32)
for step in range(10):
    tokens = torch.randint(0, 64, (8, 17), device=device)
    with autocast:
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
torch.save({"model": model.state_dict(), "step": step}, "last.pt")
tokens = torch.zeros(1, 1, dtype=torch.long, device=device)
with torch.no_grad(), autocast:
    for _ in range(200):
        logits = model(tokens[:, -16:])[:, -1].float()
        tokens = torch.cat((tokens, torch.multinomial(logits.softmax(-1), 1)), 1)
print(tokens[0].tolist())
print("".join(chr(97 + each % 26) for each in tokens[0].tolist()))
"""


def run(output=(), root="/copy", **facts):
    side = Side("a side", Path("train.py"), (), Path(root), Path(root), shim=False)
    return Run(side, 0, 1.0, [list(output)], [], [Record(**facts)])


def noisy(run, ulps=1):
    return Reference(run, ulps)


def subject(name, first, second, *references):
    return next(each for each in compare(first, second, references) if each.subject == name)


# ---- the noise -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_noise_is_one_unit_in_the_last_place_of_the_result(dtype):
    torch.manual_seed(0)
    x, y = torch.randn(16, 16, dtype=dtype), torch.randn(16, 16, dtype=dtype)
    exact = x @ y
    with Noise(1, 0):
        found = x @ y
    rounded = exact.frac() != 0
    difference = ((found - exact).double() / exact.double())[rounded].abs()
    eps = torch.finfo(dtype).eps
    assert difference.numel() > 200 and difference.min() >= eps / 4 and difference.max() <= 2 * eps


def test_noise_leaves_what_every_device_computes_exactly():
    state = torch.get_rng_state()
    x = torch.randn(100)
    with Noise(8, 0):
        assert torch.equal((x > 0).float().sum(), torch.tensor(float((x > 0).sum()))), "a count"
        assert torch.equal(x.clone(), x) and torch.equal(torch.cat((x, x))[:100], x)
        counter = torch.zeros(1)
        counter += 1
        assert counter.item() == 1
        assert torch.eye(3).mm(torch.eye(3)).equal(torch.eye(3))
        assert torch.randn(0, 3).sum(1).numel() == 0
    torch.set_rng_state(state)
    assert torch.equal(x, torch.randn(100)), "the program's random numbers"


def test_noise_reaches_the_backward_pass():
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    layer(x).sum().backward()
    exact = layer.weight.grad.clone()
    layer.zero_grad()
    with Noise(1, 0):
        layer(x).sum().backward()
    assert not torch.equal(exact, layer.weight.grad) and torch.allclose(exact, layer.weight.grad)


# ---- limits --------------------------------------------------------------------------------------------------
def test_limits_follow_the_effect_of_noise_nearby():
    values = [1.0] * 20
    series = [1.0] * 10 + [1.001] * 10
    found = limits(values, [(series, 1)], EXACT)
    assert found[0] == EXACT and found[-1] == pytest.approx(8e-3, rel=1e-2)
    assert found[7] == found[-1], "noise may leave one value unchanged by chance"
    assert limits(values, [(series, 8)], EXACT)[-1] == pytest.approx(1e-3, rel=1e-2)


def test_elements_moved_by_noise_do_not_hide_the_others():
    original = np.ones(300, np.float32)
    noise, wrong = original.copy(), original.copy()
    noise[:60] += 0.01
    wrong[:60] -= 0.011
    found = distance(original, wrong, [(noise, 1)], EXACT)
    assert found.difference <= found.limit
    wrong[60:] += 1e-4
    found = distance(original, wrong, [(noise, 1)], EXACT)
    assert found.difference > found.limit and found.difference == pytest.approx(1e-4, rel=1e-2)


def test_values_drowned_in_noise_are_left_out():
    weight = np.linspace(-1, 1, 100, dtype=np.float32)
    first, second, again = (run(parameters={"key bias": each}) for each in (weight, -weight, weight + 0.5))
    assert not subject("parameters", first, second).same
    found = subject("parameters", first, second, noisy(again))
    assert found.same and found.compared == 0
    assert found.left_out == ("1 value with rounding noise as large as the value (key bias)",)


def test_a_mistake_beside_drowned_values_is_found():
    first, second, again = (run(losses=[1.0, each], parameters={"w": np.full(90, each, np.float32)})
                            for each in (1.0, 1.01, 1.0000001))  # fmt: skip
    assert not subject("losses", first, second, noisy(again)).same
    assert not subject("parameters", first, second, noisy(again)).same


def test_random_numbers_that_depend_on_rounding():
    first, second, again = (run(random={"torch": each}) for each in "abc")
    assert not subject("random numbers", first, second, noisy(first)).same
    found = subject("random numbers", first, second, noisy(again))
    assert found.same and found.left_out


# ---- text ----------------------------------------------------------------------------------------------------
LOG = ["step 1 loss 2.5", "step 2 loss 2.4"]


def texts(first, second, *references):
    tally = Tally("text")
    text = [text_comparison.Text(each, Path("/copy")) for each in (first, second)]
    again = [(text_comparison.Text(each, Path("/copy")), ulps) for each, ulps in references]
    text_comparison.add_text(tally, *text, again, Answers(), "line {}")
    return tally.comparison()


def test_sampled_text_is_left_out_where_noise_changes_it():
    first, second = (
        [*LOG, "Sample:", *text.split("|"), *LOG] for text in ("To be|or not|to be", "To be|or so|it is")
    )
    again = [*LOG, "Sample:", *"To see|or|it|goes".split("|"), *LOG]
    assert not texts(first, second).same
    found = texts(first, second, (again, 8))
    assert found.same and "varying between the original and its run with rounding noise" in found.left_out[0]
    wrong = [*second[:-1], "step 2 loss 2.9"]
    assert not texts(first, wrong, (again, 8)).same, "the log is compared all the same"
    assert not texts(first, [LOG[0], "step 2 loss 2.9", *second[2:]], (again, 8)).same


def test_sampled_tokens_are_left_out_where_noise_changes_them():
    first, second, again = (
        [f"step 3 tokens [1, 7, {one}, 9, {two}]"] for one, two in ((5, 6), (5, 60), (50, 6))
    )
    assert not texts(first, second).same and not texts(first, second, (first, 1)).same
    assert texts(first, second, (again, 8)).same
    assert not texts(first, ["step 4 tokens [1, 7, 5, 9, 6]"], (again, 8)).same


def test_counts_keep_a_limit():
    first, second, again = ([f"correct {number} of 10000"] for number in (9000, 9002, 9001))
    assert texts(first, second, (again, 1)).same
    assert not texts(first, ["correct 9100 of 10000"], (again, 1)).same


# ---- runs ----------------------------------------------------------------------------------------------------
def verify(folder, *arguments):
    (folder / "train.py").write_text(SCRIPT)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    options = ["train.py", "--steps", "0", "--json", "--", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "isthmus", "migrate", "verify", *options],
        capture_output=True, text=True, check=False, cwd=folder, env={**kept, "OMP_NUM_THREADS": "1"}, timeout=500,
    )  # fmt: skip
    found = json.loads(done.stdout)
    return done, found, {each["subject"] for each in found["comparisons"] if not each["same"]}


@pytest.mark.sampled(1)
@pytest.mark.full
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_rounding_is_no_difference(tmp_path, precision):
    done, found, differing = verify(tmp_path, "none", precision)
    assert done.returncode == 0 and not differing, done.stdout
    assert found["same"] and found["within_noise"] and found["original_repeats_itself"]
    counts = {each["subject"]: each["compared"] for each in found["comparisons"]}
    assert counts["losses"] == 10 and counts["parameters"] > 20 and counts["saved files"] > 20


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("mistake", ["rate", "layer"])
def test_a_mistake_is_found_beside_rounding(tmp_path, mistake, precision):
    done, found, differing = verify(tmp_path, mistake, precision)
    assert done.returncode == 1 and not found["same"] and {"parameters", "saved files"} <= differing, (
        done.stdout
    )
    assert mistake == "rate" or "losses" in differing
