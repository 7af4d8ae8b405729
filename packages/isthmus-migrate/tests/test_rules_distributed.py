"""Ends of findings of backends, launchers, local ranks and environment variables."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source

HEAD = "import os, subprocess, sys, torch\nimport torch.distributed as dist\n"
DEFAULT = "dist.get_default_backend_for_device(DEVICE)"


def ends(source: str, *codes: str) -> list[tuple[str, str, str]]:
    """Code, subject and end of each finding with one of these codes."""
    result = convert_source(HEAD + source + "\n", "train.py")
    return [(each.code, each.subject, each.severity.value) for each in result.findings if each.code in codes]


def converted(source: str) -> str:
    """The converted source, without the head."""
    return convert_source(HEAD + source + "\n", "train.py").text.partition('torch.device("cpu")\n\n')[2]


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ('dist.new_group(backend="nccl" if fast else "gloo")', "automatic"),
        ('dist.init_process_group(name or "nccl")', "automatic"),
        ("backend = dist.Backend.NCCL", "automatic"),
        ('settings = {"backend": "nccl"}', "review"),
        ('def start(backend="nccl"):\n    pass', "review"),
        ('run(backend="nccl")', "review"),
        ('words = "nccl".upper()', "review"),
        ('backend = "nccl" if torch.cuda.is_available() else "gloo"\nprint(backend)', "automatic"),
        ('name = "nccl" if torch.cuda.is_available() else "gloo"\nprint(name)', "none"),
    ],
)
def test_a_name_is_a_backend_only_where_the_source_shows_it(source: str, end: str) -> None:
    (found,) = ends(source, "IM201")
    assert found[2] == end


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ('if dist.get_backend() == "nccl":\n    pass', "automatic"),
        ('if dist.get_backend(group).lower() == "nccl":\n    pass', "automatic"),
        ('backend = dist.get_backend()\nif backend in ("nccl", "gloo"):\n    pass', "automatic"),
        ("if dist.get_backend() == dist.Backend.NCCL:\n    pass", "automatic"),
        ('if name == "nccl":\n    pass', "review"),
        ('if dist.get_backend() == "nccl":\n    warn("NCCL waits without a timeout")', "none"),
        ('if dist.get_backend() == "nccl":\n    warn("nccl backend needs two GPUs")', "none"),
        ('if dist.get_backend() == "nccl":\n    run("nccl")', "automatic"),
        ('if dist.get_backend() == "nccl":\n    os.environ["NCCL_DEBUG"] = "INFO"', "none"),
        ('if dist.get_backend() != "nccl":\n    raise ValueError\ntorch.cuda.nccl.version()', "none"),
        ("if dist.is_nccl_available():\n    pass", "automatic"),
        ("asks = dist.is_nccl_available", "manual"),
    ],
)
def test_a_test_for_nccl_stays_in_front_of_code_for_nccl(source: str, end: str) -> None:
    (found,) = ends(source, "IM202")
    assert found[2] == end


def test_the_choices_of_an_option_are_what_its_default_is() -> None:
    source = (
        "import argparse\np = argparse.ArgumentParser()\n"
        'p.add_argument("--b", default="nccl", choices=["nccl", "gloo"])\n'
        "dist.init_process_group(p.parse_args().b)"
    )
    assert f'default={DEFAULT}, choices=[{DEFAULT}, "gloo"])' in converted(source)


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ('["-m", "torch.distributed.launch", "--use_env", "a.py"]', '["-m", "torch.distributed.run", "a.py"]'),
        ('"python -m torch.distributed.launch --use_env a.py"', '"torchrun a.py"'),
    ],
)  # fmt: skip
def test_a_command_starts_torchrun(command: str, after: str) -> None:
    result = convert_source(f"{HEAD}subprocess.run({command})\n", "train.py")
    assert result.text == f"{HEAD}subprocess.run({after})\n"


@pytest.mark.parametrize(
    "source", ['text = "python -m torch.distributed.launch a.py"', 'names = ["torch.distributed.launch"]']
)
def test_a_text_about_the_launcher_is_not_changed(source: str) -> None:
    assert ends(source, "IM220") == [("IM220", "torch.distributed.launch", "review")]


@pytest.mark.parametrize(
    ("argument", "end"),
    [
        ("type=int", "automatic"),
        ("type=int, default=-1", "automatic"),
        ("default=None", "review"),
        ("type=str", "review"),
        ("**given", "review"),
        ("required=True", "manual"),
    ],
)
def test_local_rank(argument: str, end: str) -> None:
    (found,) = ends(f'parser.add_argument("--local_rank", {argument})', "IM221")
    assert found[2] == end


@pytest.mark.parametrize(
    ("indices", "end"),
    [
        ("device_ids=[r]", "automatic"),
        ("[r]", "automatic"),
        ('device_ids=[r] if device.type == "cuda" else None', "none"),
        ("device_ids=[r] if many else None", "review"),
    ],
)
def test_indices_of_a_model_that_may_be_on_the_cpu(indices: str, end: str) -> None:
    (found,) = ends(f"torch.nn.parallel.DistributedDataParallel(m, {indices})", "IM203")
    assert found[2] == end


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ('os.environ["NCCL_DEBUG"] = "INFO"', "review"),
        ('if dist.get_backend() == "nccl":\n    os.environ["NCCL_DEBUG"] = "INFO"', "none"),
        ("dist.ProcessGroupNCCL.Options()", "manual"),
        ('if dist.get_backend() == "nccl":\n    dist.ProcessGroupNCCL.Options()', "none"),
    ],
)
def test_what_only_nccl_has(source: str, end: str) -> None:
    (found,) = ends(source, "IM222", "IM290")
    assert found[2] == end


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("DDP(model.cuda(rank), device_ids=[rank])", 1),
        ("DDP(model.cuda(rank), [rank])", 1),
        ("DDP(model, device_ids=None)", 0),
        ("DDP(model)", 0),
        ('DDP(model.cuda(rank), device_ids=[rank])\nbackend = "nccl"', 0),
    ],
)
def test_gloo_of_a_model_on_an_accelerator(source: str, found: int) -> None:
    imports = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    for group in ('dist.init_process_group("gloo")', 'dist.init_process_group(backend="gloo")'):
        assert len(ends(f"{imports}{group}\n{source}", "IM208")) == found


def test_an_element_of_device_ids_is_not_none() -> None:
    source = """from torch.nn.parallel import DistributedDataParallel as DDP


class Hybrid(torch.nn.Module):
    def __init__(self, device{default}):
        self.fc = DDP(torch.nn.Linear(2, 2).cuda(device), device_ids=[device])
        self.device = device

    def forward(self, x):
        return self.fc(x.cuda(self.device))
"""
    text = converted(source.format(default=""))
    assert "Linear(2, 2).to(device)" in text
    assert "x.to(self.device)" in text
    assert converted(source.format(default="=None")).count("is None else") == 2
