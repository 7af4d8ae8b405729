"""Storage of PyTorch's distributed checkpoints: the same files as PyTorch's own, written and read faster.

.. code-block:: python

    import torch.distributed.checkpoint as dcp
    from isthmus_formats.checkpoint.storage import Reader, Writer

    dcp.save(state, storage_writer=Writer("step-100"))
    dcp.load(state, storage_reader=Reader("step-100"))

Files are written past the page cache (``O_DIRECT``), without the CRC that PyTorch does not check when it loads. A
part of a tensor is read from its place in the file, by several threads, into the tensor that is loaded.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import gc
import io
import math
import mmap
import os
import pickle
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy
import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.filesystem import (
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.serialization import get_unsafe_globals_in_checkpoint
from torch.storage import _storage_type_to_dtype_map
from torch.utils.serialization import config

from isthmus_common.files import make_folder
from isthmus_formats.checkpoint.containers.file_tensors import as_bytes, read_into
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.dcp import read_metadata

_BLOCK = 4096  # O_DIRECT writes whole blocks from addresses that are multiples of one
_BUFFER = 16 << 20
_HEAD = 2048  # bytes of what torch.save writes before the data of a tensor, and more
_RECORD = re.compile(rb"PK\x03\x04.{24}(?P<more>..)[^/]*/(?P<name>data\.pkl|byteorder|data/0)", re.DOTALL)
_memory = threading.local()  # the buffer of each thread that reads
_THREADS = min(4, os.cpu_count() or 1)


class Writer(FileSystemWriter):
    """Writes a checkpoint of ``torch.distributed.checkpoint.save`` or ``async_save``.

    Each rank writes one file; ``.metadata`` comes last, so that a save that was interrupted is not a checkpoint.

    Args:
        path: folder of the checkpoint, on storage that all ranks share.
        overwrite: replace a checkpoint that is there.

    Raises:
        CheckpointError: there is a checkpoint, and ``overwrite`` is false.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        super().__init__(path, sync_files=False, overwrite=overwrite)  # closing a file syncs it
        self.fs = _Files()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Check the folder and create it."""
        if self._metadata_exists():
            if not self.overwrite:
                raise CheckpointError(
                    f"{self.path}: has a checkpoint; choose another folder, or give overwrite=True"
                )
            Path(self._get_metadata_path()).unlink(missing_ok=True)  # another rank may have removed it
        return super().prepare_local_plan(plan)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the tensors and objects of this rank."""
        with config.patch({"save.compute_crc32": False}):  # type: ignore[attr-defined]
            return super().write_data(plan, planner)


class Reader(FileSystemReader):
    """Reads a checkpoint for ``torch.distributed.checkpoint.load``, whoever wrote it and on however many ranks.

    Args:
        path: folder of the checkpoint.
        allow_pickle: execute what objects in the checkpoint ask for; tensors never execute anything.

    Raises:
        CheckpointError: the checkpoint is damaged, or an object in it asks for code to be executed.
    """

    def __init__(self, path: str | os.PathLike[str], *, allow_pickle: bool = False) -> None:
        super().__init__(path)
        self.allow_pickle = allow_pickle

    def read_metadata(self, *args: object, **kwargs: Any) -> Metadata:
        """Return what the checkpoint holds."""
        path = Path(self._get_metadata_path(kwargs.get("rank")))
        if not path.is_file():
            raise CheckpointError(
                f"{self.path}: has no {path.name}; no checkpoint, or its save was interrupted"
            )
        metadata = read_metadata(path)
        metadata.storage_meta = StorageMeta(checkpoint_id=self.path, load_id=self.load_id)
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the tensors and objects that this rank needs."""
        others, done = [], []
        files: dict[str, io.FileIO] = {}
        with (
            _no_collection(),
            contextlib.ExitStack() as stack,
            concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
        ):
            for item in plan.items:
                info = self.storage_data[item.storage_index]
                if info.relative_path not in files:
                    path = Path(self.path) / info.relative_path
                    files[info.relative_path] = stack.enter_context(path.open("rb", buffering=0))
                file = files[info.relative_path]
                if item.type == LoadItemType.BYTE_IO:
                    self._check(file, info, item.storage_index.fqn)
                if item.type == LoadItemType.BYTE_IO or (source := _locate(file, info)) is None:
                    others.append(item)
                    continue
                target = planner.resolve_tensor(item).detach()
                done.append((item, target, _read(pool, file, source, item, target)))
            for item, target, parts in done:
                for part in parts:
                    part.result()
                planner.commit_tensor(item, target)
        return super().read_data(replace(plan, items=others), planner)

    def _check(self, file: io.FileIO, info: _StorageInfo, name: str) -> None:
        unsafe = get_unsafe_globals_in_checkpoint(
            io.BytesIO(os.pread(file.fileno(), info.length, info.offset))
        )
        if unsafe and not self.allow_pickle:
            raise CheckpointError(
                f"{file.name}: reading {name} would execute code ({min(unsafe)}); if you trust its author, "
                "give Reader allow_pickle=True"
            )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the objects of many small parts from having all of a job's objects looked through several times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Files(FileSystem):
    """Files written past the page cache, with the modes of the project."""

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        try:
            with _DirectFile(Path(path)) as written:
                yield cast(io.IOBase, written)
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        make_folder(Path(path))


class _DirectFile:
    """A file that is written from two buffers: one is filled while the other is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _create(path)
        self._buffers = [mmap.mmap(-1, _BUFFER) for _ in range(2)]
        self._views = [numpy.frombuffer(each, numpy.uint8) for each in self._buffers]
        self._position = 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._writing: concurrent.futures.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass  # PyTorch flushes after each tensor

    def write(self, data: bytes | memoryview) -> int:
        length = memoryview(data).nbytes
        source = numpy.frombuffer(data, numpy.uint8)
        while source.size:
            used = self._position % _BUFFER
            part, source = source[: _BUFFER - used], source[_BUFFER - used :]
            self._views[self._position // _BUFFER % 2][used : used + part.size] = part
            self._position += part.size
            if self._position % _BUFFER == 0:
                self._write_buffer(self._position - _BUFFER, _BUFFER)
        return length

    def close(self) -> None:
        """Write the rest and wait until the file is on the disk.

        Raises:
            OSError: it could not be written.
        """
        if self._file < 0:
            return
        try:
            rest = self._position % _BUFFER
            if rest:
                self._write_buffer(self._position - rest, -(-rest // _BLOCK) * _BLOCK)
            self._wait()
            os.ftruncate(self._file, self._position)
            os.fsync(self._file)
        finally:
            self._thread.shutdown()
            os.close(self._file)
            self._file = -1

    def _write_buffer(self, offset: int, length: int) -> None:
        self._wait()
        buffer = memoryview(self._buffers[offset // _BUFFER % 2])[:length]
        self._writing = self._thread.submit(self._write, buffer, offset)

    def _wait(self) -> None:
        if self._writing:
            self._writing.result()

    def _write(self, buffer: memoryview, offset: int) -> None:
        try:
            while buffer:
                written = os.pwrite(self._file, buffer, offset)
                buffer, offset = buffer[written:], offset + written
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        file = os.open(path, flags | os.O_DIRECT, 0o640)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system has no direct writes
            raise
        file = os.open(path, flags, 0o640)
    os.fchmod(file, 0o640)
    return file


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor's data in a file, row by row."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def row(self) -> int:
        """Bytes of an element of the first dimension."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class _Description(pickle.Unpickler):
    """Reads the description of one tensor that torch.save wrote, and nothing else."""

    def persistent_load(self, pid: Any) -> tuple[torch.dtype, int]:
        _, dtype, _, _, count = pid
        return dtype, count

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _describe
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and name in (dtypes := _storage_type_to_dtype_map()):
            return dtypes[name]
        raise pickle.UnpicklingError(f"{module}.{name}")


def _describe(
    storage: tuple[torch.dtype, int], offset: int, size: Any, stride: Any, _: bool, hooks: Any, bits: Any = ()
) -> tuple[Any, ...]:
    if bits:
        raise pickle.UnpicklingError("conjugated or negated")
    return (*storage, offset, size, stride)


def _locate(file: io.FileIO, info: _StorageInfo) -> _Place | None:
    """Return the place of a tensor, or None if only PyTorch can read it, such as a transposed one."""
    if info.transform_descriptors:
        return None
    head = os.pread(file.fileno(), min(info.length, _HEAD), info.offset)
    starts: dict[bytes, int] = {}
    for each in _RECORD.finditer(head):  # the data may have such records too, after those of the file
        starts.setdefault(each["name"], each.end() + int.from_bytes(each["more"], "little"))
    try:
        dtype, count, first, shape, stride = _Description(io.BytesIO(head[starts[b"data.pkl"] :])).load()
        native = head.startswith(sys.byteorder.encode(), starts[b"byteorder"])
        data = starts[b"data/0"]
    except Exception:  # whatever a damaged pickle leads to; PyTorch then says what is wrong
        return None
    contiguous = torch.empty(shape, dtype=dtype, device="meta").stride() == tuple(stride)
    if first or not contiguous or not native or count != math.prod(shape):
        return None
    return _Place(info.offset + data, dtype, tuple(shape))


def _read(
    pool: concurrent.futures.Executor, file: io.FileIO, place: _Place, item: ReadItem, target: torch.Tensor
) -> list[concurrent.futures.Future[None]]:
    """Start to read the part of a tensor that is asked for into another tensor, some rows at a time."""
    if tuple(target.shape) != tuple(item.lengths):
        raise CheckpointError(
            f"{item.dest_index.fqn}: has the shape {tuple(target.shape)}, not {tuple(item.lengths)}"
        )
    if not place.shape:
        return [pool.submit(_read_rows, file, place, place.offset, (), (), target)]
    (first, *inner), (rows, *lengths) = item.storage_offsets, item.lengths
    step = max(1, _BUFFER // max(1, place.row))
    return [
        pool.submit(
            _read_rows,
            file,
            place,
            place.offset + (first + row) * place.row,
            inner,
            lengths,
            target[row : row + step],
        )
        for row in range(0, rows, step)
    ]


def _read_rows(
    file: io.FileIO,
    place: _Place,
    offset: int,
    inner: Sequence[int],
    lengths: Sequence[int],
    target: torch.Tensor,
) -> None:
    direct = target.is_cpu and target.is_contiguous() and target.dtype == place.dtype
    if direct and tuple(lengths) == place.shape[1:]:
        read_into(file.fileno(), as_bytes(target), offset, Path(file.name))
        return
    rows = target.shape[:1]
    count = math.prod(rows) * place.row
    if count > len(getattr(_memory, "buffer", ())):
        _memory.buffer = torch.empty(max(count, _BUFFER), dtype=torch.uint8)
    buffer = _memory.buffer[:count].view(place.dtype).view(*rows, *place.shape[1:])
    read_into(file.fileno(), as_bytes(buffer), offset, Path(file.name))
    target.copy_(narrow_tensor_by_index(buffer, (*(0 for _ in rows), *inner), (*rows, *lengths)))
