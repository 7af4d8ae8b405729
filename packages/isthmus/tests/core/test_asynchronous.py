"""ISTHMUS_HOST_ASYNC=1: kernels, copies and fills of the host and numpy chips run later, as on a real chip."""

from __future__ import annotations

import json

import pytest

from tests.helpers import children

HOST = {"ISTHMUS_DRIVER": "host", "ISTHMUS_HOST_MEMORY": "1GiB", "OMP_NUM_THREADS": "1"}
MODE = {**HOST, "ISTHMUS_HOST_ASYNC": "1"}
TRAIN = """
import torch
from torch import nn

def train(device):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.0), nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    torch.manual_seed(2)
    data, labels = torch.randn(16, 32).to(device), torch.arange(16).remainder(8).to(device)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()
"""
LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=128, attention_dropout=0.1, use_cache=False)

def train(steps=5):
    torch.manual_seed(1234)
    model = LlamaForCausalLM(config).to("chip")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, fused=True)
    losses = []
    for step in range(steps):
        words = torch.arange(4 * 33).mul(7 + step).remainder(128).view(4, 33).pin_memory()
        words = words.to("chip", non_blocking=True)
        with torch.autocast("chip", dtype=torch.bfloat16):
            logits = model(input_ids=words[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return torch.cat([torch.stack(losses), weights]).cpu()
"""


def test_a_launched_kernel_is_not_a_finished_one():
    printed = children.output(
        """
        import torch
        x = torch.randn(700, 700, device="chip")
        torch.chip.synchronize()
        y = x @ x
        print(torch.chip.current_stream().query())
        torch.chip.synchronize()
        print(torch.chip.current_stream().query(), torch.equal(y.cpu(), x.cpu() @ x.cpu()))
        fresh = torch.empty(4, device="chip")  # what an earlier tensor left is overwritten
        print(fresh.isnan().all().item())
        """,
        **MODE,
    )
    assert printed.split() == ["False", "True", "True", "True"]


def test_a_failure_is_thrown_by_the_next_wait():
    printed = children.output(
        """
        import torch
        x = torch.zeros(3, device="chip")
        index = torch.tensor([5], device="chip")
        y = x.index_select(0, index)  # nothing is known of the index yet
        z = y + 1
        try:
            torch.chip.synchronize()
        except IndexError as error:
            print("out of range" in str(error))
        print((x + 1).tolist())
        """,
        **MODE,
    )
    assert printed.splitlines() == ["True", "[1.0, 1.0, 1.0]"]


@pytest.mark.parametrize("driver", ["host", "numpy"])
def test_a_training_is_that_of_the_chip_that_waits(driver):
    script = TRAIN + "print(train('chip').tolist())"
    waits, later = (children.output(script, **{**mode, "ISTHMUS_DRIVER": driver}) for mode in (HOST, MODE))
    assert waits == later != ""
    if driver == "host":
        assert children.output(TRAIN + "print(torch.equal(train('chip'), train('cpu')))", **MODE) == "True"


def test_ten_trainings_of_llama_with_random_delays_are_equal():
    script = LLAMA + "print([train().view(torch.int32).tolist() for _ in range({})])"
    (waits,) = json.loads(children.output(script.format(1), **HOST))
    later = json.loads(children.output(script.format(10), **MODE))
    assert later == [waits] * 10


def test_a_receiver_that_has_allocated_nothing_reads_what_it_got():
    printed = children.output(
        """
        import torch
        import torch.multiprocessing as mp

        def read(inbox, outbox):
            outbox.put(inbox.get(timeout=60).tolist())

        if __name__ == "__main__":
            context = mp.get_context("fork")
            inbox, outbox = context.Queue(), context.Queue()
            child = context.Process(target=read, args=(inbox, outbox))
            child.start()  # before the first use of the chip
            tensor = torch.arange(4.0, device="chip") + 1
            inbox.put(tensor)
            print(outbox.get(timeout=60))
            child.join()
        """,
        **MODE,
    )
    assert printed == "[1.0, 2.0, 3.0, 4.0]"


def test_two_threads_that_free_memory_do_not_wait_for_each_other():
    printed = children.output(
        """
        import faulthandler, threading
        import torch
        faulthandler.dump_traceback_later(60, exit=True)
        x = torch.randn(700, 700, device="chip")
        for _ in range(5):
            large = torch.empty(30 << 20, device="chip")
            for _ in range(10):
                y = x @ x
            del large  # the first thread waits for the kernels, the second for the first
            threads = [threading.Thread(target=torch.chip.empty_cache) for _ in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        print(torch.equal(y, x @ x))
        """,
        **MODE,
    )
    assert printed == "True"


def test_a_random_kernel_draws_later_and_in_order():
    printed = children.output(
        """
        import torch
        from torch import nn
        wide, other = torch.zeros(3_000_000, device="chip"), torch.chip.Stream()
        other.wait_stream(torch.chip.current_stream())
        torch.chip.synchronize()

        def draw(device):
            torch.manual_seed(1)
            first = (wide if device == "chip" else torch.zeros(3_000_000)).uniform_()
            later = device == "chip" and not torch.chip.current_stream().query()
            with torch.chip.stream(other):  # after the first, which is on another stream
                second = torch.randn(9, device=device)
            other.synchronize()
            state = torch.chip.get_rng_state() if device == "chip" else torch.get_rng_state()
            third = torch.empty(0, device=device)
            torch.randint(9, (5,), dtype=torch.float32, device=device, out=third)
            return later, [first.cpu(), second.cpu(), state, third.cpu()]

        later, ours = draw("chip")
        print(later, all(map(torch.equal, ours, draw("cpu")[1])))
        """,
        **MODE,
    )
    assert printed == "True True"


@pytest.mark.parametrize(
    "call",
    [
        "F.conv2d(x, w, b, padding=1)",
        "F.conv_transpose2d(x, w, b, stride=2)",
        "torch.add(x, 1, out=out)",
        "torch.sum(x, 1, out=out)",
        "torch.cumsum(x, 1, out=out)",
    ],
)
def test_convolutions_and_outputs_that_are_given_come_later(call):
    printed = children.output(
        f"""
        import torch
        import torch.nn.functional as F
        hold = torch.randn(700, 700, device="chip")
        x, w, b = torch.randn(2, 3, 9, 9), torch.randn(3, 3, 3, 3), torch.randn(3)
        out = torch.empty(0)
        expected = {call}
        x, w, b = (each.to("chip") for each in (x, w, b))
        out = torch.empty(expected.shape, device="chip")
        hold @ hold
        found = {call}
        later = not torch.chip.current_stream().query()
        print(later, torch.equal(found.cpu(), expected), found.stride() == expected.stride())
        """,
        **MODE,
    )
    assert printed == "True True True"


def test_gradients_of_a_convolution_come_later():
    printed = children.output(
        """
        import torch
        def gradients(device):
            torch.manual_seed(3)
            x, w = (torch.randn(*sizes).to(device).requires_grad_() for sizes in ((2, 3, 9, 9), (4, 3, 3, 3)))
            torch.nn.functional.conv2d(x, w, padding=1).square().sum().backward()
            return x.grad.cpu(), w.grad.cpu()
        print(all(map(torch.equal, gradients("chip"), gradients("cpu"))))
        """,
        **MODE,
    )
    assert printed == "True"


@pytest.mark.parametrize("driver", ["host", "numpy"])
def test_a_replay_comes_later_and_is_waited_for(driver):
    printed = children.output(
        """
        import torch
        x = torch.ones(300, 300, device="chip")
        graph = torch.chip.Graph()
        with torch.chip.graph(graph):
            noise = torch.rand(300, 300, device="chip")
            y = x @ x + noise
        torch.manual_seed(7)
        torch.chip.synchronize()
        x.fill_(2)
        graph.replay()
        later = not torch.chip.current_stream().query()
        state = torch.chip.get_rng_state()  # after what the replay draws
        found = y.cpu()
        torch.manual_seed(7)
        x.fill_(2)
        graph.replay()
        del x, graph
        torch.chip.synchronize()
        again = torch.chip.get_rng_state()
        print(later, torch.equal(found, y.cpu()), torch.equal(state, again), float(found.min()) >= 1200)
        """,
        **{**MODE, "ISTHMUS_DRIVER": driver},
    )
    assert printed == "True True True True"
