"""Fork: a child may use the chip if its parent has not; otherwise every entry point raises with the reason."""

from __future__ import annotations

from tests.helpers import children

WAYS_IN = """
    import os, sys, torch

    {before}
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        ways = (
            lambda: torch.ones(1, device="chip"),
            lambda: torch.ones(1).to("chip"),
            lambda: torch.chip.synchronize(),
            lambda: torch.chip.Stream(),
            lambda: torch.chip.Event().record(),
            lambda: torch.chip.set_device(0),
            lambda: torch.chip.get_device_name(),
            lambda: torch.chip.mem_get_info(),
            lambda: torch.chip.current_device(),
            lambda: torch.chip.current_stream(),
            lambda: torch.chip.default_stream(0),
            torch.chip.init,
        )
        for way in ways:
            try:
                way()
                print("ok")
            except RuntimeError as error:
                print(str(error).splitlines()[0])
        print("count", torch.chip.device_count(), torch.chip._is_in_bad_fork())
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    os.wait()
    print(os.read(read, 1 << 16).decode(), end="")
    {after}
"""


def test_after_first_use_it_is_refused() -> None:
    lines = children.output(
        WAYS_IN.format(
            before='x = torch.ones(2, device="chip"); event = torch.chip.current_stream().record_event()',
            after="print(x.sum().item())",
        )
    ).splitlines()
    message = "the chip cannot be used in a process forked after its first use. Use the spawn start method."
    assert lines == [message] * 12 + ["count 2 True", "2.0"]


def test_before_first_use_it_works() -> None:
    lines = children.output(WAYS_IN.format(before="torch.chip.device_count()", after="")).splitlines()
    assert lines == ["ok"] * 12 + ["count 2 False"]


def test_a_child_counts_the_devices_of_its_parent() -> None:
    """As with CUDA: PyTorch itself counts none, so that backward on the CPU starts no thread for a device."""
    program = """
        import os, torch

        torch.ones(1, device="chip")
        if os.fork() == 0:
            print(torch.chip.is_available(), torch.chip.device_count(), torch.accelerator.is_available())
            x = torch.ones(2, requires_grad=True)
            x.sum().backward()
            print(x.grad.tolist(), flush=True)
            os._exit(0)
        os.wait()
    """
    result = children.run(program)
    assert result.stdout.splitlines() == ["True 2 True", "[1.0, 1.0]"], result.stderr
    assert result.stderr == ""
