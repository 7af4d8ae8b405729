"""PyTorch's distributed checkpoints, written and read by isthmus_formats.checkpoint.storage."""

import io
import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, SavePlan

from isthmus_formats.checkpoint import storage
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.storage import Reader, Writer


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    """Let small tensors fill several buffers."""
    monkeypatch.setattr(storage, "_BUFFER", 2 * storage._BLOCK)


def state() -> dict[str, object]:
    random = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(97, 131, generator=random),
        "half": torch.randn(33, 5, 7, generator=random).bfloat16(),
        "bytes": torch.randint(0, 255, (3 * storage._BLOCK + 1,), dtype=torch.uint8, generator=random),
        "transposed": torch.randn(40, 30, generator=random).t(),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 4),
        "eighth": torch.randn(4, 8, generator=random).to(torch.float8_e4m3fn),
        "complex": torch.randn(4, 8, dtype=torch.complex64, generator=random),
        "conjugated": torch.randn(4, 8, dtype=torch.complex64, generator=random).conj(),
        "negated": torch._neg_view(torch.randn(4, 8, generator=random)),
        "archive": archive(),
        "step": 7,
        "names": ["a", "b"],
    }


def archive() -> torch.Tensor:
    """Return the bytes of a file of torch.save, as Transformer Engine's extra state."""
    stream = io.BytesIO()
    torch.save(torch.arange(16.0), stream)
    return torch.frombuffer(stream.getbuffer(), dtype=torch.uint8).clone()


def blank() -> dict[str, object]:
    return {
        name: torch.zeros_like(each) if isinstance(each, torch.Tensor) else None
        for name, each in state().items()
    }


def check(loaded: dict[str, object]) -> None:
    for name, each in state().items():
        if isinstance(each, torch.Tensor):
            assert loaded[name].dtype == each.dtype
            assert torch.equal(loaded[name], each)
        else:
            assert loaded[name] == each


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def reason(error: BaseException) -> str:
    """Return the text of what a rank raised."""
    return "\n".join(str(each) for each, _ in error.failures.values())


@pytest.mark.parametrize("writer", [Writer, dcp.FileSystemWriter])
@pytest.mark.parametrize("reader", [Reader, dcp.FileSystemReader])
def test_both_read_what_both_write(tmp_path, writer, reader):
    dcp.save(state(), storage_writer=writer(tmp_path / "step"), no_dist=True)
    loaded = blank()
    dcp.load(loaded, storage_reader=reader(tmp_path / "step"), no_dist=True)
    check(loaded)


def test_a_save_in_the_background(tmp_path):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        saved = state()
        saving = dcp.async_save(saved, storage_writer=Writer(tmp_path / "step"))
        for each in saved.values():
            if isinstance(each, torch.Tensor):
                each.zero_()  # the next step of training does the same
        saving.result()
        loaded = blank()
        dcp.load(loaded, storage_reader=Reader(tmp_path / "step"))
    finally:
        torch.distributed.destroy_process_group()
    check(loaded)


def test_tensors_of_the_chip(tmp_path):
    weight = torch.randn(300, 70)
    dcp.save({"weight": weight.to("chip")}, storage_writer=Writer(tmp_path / "step"), no_dist=True)
    loaded = {"weight": torch.zeros(300, 70, device="chip")}
    dcp.load(loaded, storage_reader=Reader(tmp_path / "step"), no_dist=True)
    assert torch.equal(loaded["weight"].cpu(), weight)


class Planner:
    """Takes one part of a tensor."""

    def __init__(self, target: torch.Tensor) -> None:
        self.target, self.committed = target, False

    def resolve_tensor(self, _: ReadItem) -> torch.Tensor:
        return self.target

    def commit_tensor(self, _: ReadItem, tensor: torch.Tensor) -> None:
        assert tensor.data_ptr() == self.target.data_ptr()
        self.committed = True


@pytest.mark.parametrize(
    ("name", "offsets", "lengths"),
    [
        ("weight", (13, 0), (71, 131)),
        ("weight", (0, 60), (97, 71)),
        ("weight", (96, 130), (1, 1)),
        ("half", (2, 1, 3), (30, 4, 2)),
        ("bytes", (storage._BLOCK - 1,), (storage._BLOCK + 2,)),
        ("transposed", (3, 4), (20, 30)),
    ],
)
@pytest.mark.parametrize("strided", [False, True])
def test_parts_of_tensors(tmp_path, name, offsets, lengths, strided):
    dcp.save(state(), storage_writer=Writer(tmp_path / "step"), no_dist=True)
    reader = Reader(tmp_path / "step")
    reader.set_up_storage_reader(reader.read_metadata(), is_coordinator=True)
    whole = state()[name]
    index = MetadataIndex(name, (0,) * whole.dim(), 0)
    item = ReadItem(
        LoadItemType.TENSOR, index, torch.Size([0]), index, torch.Size(offsets), torch.Size(lengths)
    )
    target = torch.zeros(*lengths[:-1], 2 * lengths[-1], dtype=whole.dtype)[..., ::2]
    planner = Planner(target if strided else target.contiguous())
    reader.read_data(LoadPlan([item]), planner)
    part = whole[tuple(slice(first, first + count) for first, count in zip(offsets, lengths, strict=True))]
    assert planner.committed
    assert torch.equal(planner.target, part)


def test_a_checkpoint_is_replaced_only_if_asked(tmp_path):
    dcp.save({"step": 1}, storage_writer=Writer(tmp_path / "step"), no_dist=True)
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.save({"step": 2}, storage_writer=Writer(tmp_path / "step"), no_dist=True)
    assert "overwrite=True" in reason(caught.value)
    loaded = {"step": 0}
    dcp.load(loaded, storage_reader=Reader(tmp_path / "step"), no_dist=True)
    assert loaded == {"step": 1}
    dcp.save({"step": 2}, storage_writer=Writer(tmp_path / "step", overwrite=True), no_dist=True)
    dcp.load(loaded, storage_reader=Reader(tmp_path / "step"), no_dist=True)
    assert loaded == {"step": 2}


def test_ranks_that_replace_a_checkpoint_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Writer, "_metadata_exists", lambda _: True)  # asked before another rank removed it
    Writer(tmp_path / "step", overwrite=True).prepare_local_plan(SavePlan([]))


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes(tmp_path, umask):
    before = os.umask(umask)
    try:
        dcp.save({"weight": torch.ones(4)}, storage_writer=Writer(tmp_path / "a" / "step"), no_dist=True)
    finally:
        os.umask(before)
    modes = {each.stat().st_mode & 0o777 for each in (tmp_path / "a" / "step").iterdir()}
    assert modes == {0o640}
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "a", tmp_path / "a" / "step")} == {0o750}


def test_a_full_disk_leaves_no_checkpoint(tmp_path):
    folder = tmp_path / "step"
    with largest_file(3 * storage._BLOCK), pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.save(state(), storage_writer=Writer(folder), no_dist=True)
    assert f"File too large: '{folder}/__0_0.distcp'" in reason(caught.value)
    assert not any(folder.iterdir())
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load(blank(), storage_reader=Reader(folder), no_dist=True)
    assert f"{folder}: has no .metadata" in reason(caught.value)


def test_a_truncated_file(tmp_path):
    dcp.save({"weight": torch.ones(9000)}, storage_writer=Writer(tmp_path / "step"), no_dist=True)
    os.truncate(tmp_path / "step" / "__0_0.distcp", 8000)
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load({"weight": torch.zeros(9000)}, storage_reader=Reader(tmp_path / "step"), no_dist=True)
    assert "__0_0.distcp: truncated" in reason(caught.value)


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dcp.save({"object": Malicious()}, storage_writer=Writer("step"), no_dist=True)
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load({"object": None}, storage_reader=Reader("step"), no_dist=True)
    assert "reading object would execute code (posix.system)" in reason(caught.value)
    assert "allow_pickle=True" in reason(caught.value)
    assert not Path("executed").exists()
    dcp.load({"object": None}, storage_reader=Reader("step", allow_pickle=True), no_dist=True)
    assert Path("executed").exists()


def test_files_outside_the_folder_are_refused(tmp_path):
    dcp.save({"weight": torch.ones(4)}, storage_writer=Writer(tmp_path / "step"), no_dist=True)
    path = tmp_path / "step" / ".metadata"
    content = pickle.loads(path.read_bytes())
    for info in content.storage_data.values():
        info.relative_path = f"../{tmp_path.name}/secret"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(CheckpointError, match="outside its folder"):
        Reader(tmp_path / "step").read_metadata()
