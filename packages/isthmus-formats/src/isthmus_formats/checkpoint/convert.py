"""Conversion of a checkpoint to another format or layout, parameter by parameter.

The target is written into a hidden folder beside it, with a journal, and renamed when it is complete: a conversion
that is killed leaves no half target, and resumes when it is started again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Condition
from typing import Any, Self

import torch

from isthmus_common.files import fingerprint, lock_file, make_folder, write_file
from isthmus_common.progress import Bar, say
from isthmus_formats.checkpoint.architectures import read_config
from isthmus_formats.checkpoint.containers.file_tensors import (
    DTYPE_NAMES,
    Readable,
    Stored,
    digest,
    name_of,
    size,
)
from isthmus_formats.checkpoint.errors import CheckpointError, report_damage
from isthmus_formats.checkpoint.formats.base import Format, Key, Shapes
from isthmus_formats.checkpoint.layout import Layout, Parameter, Piece, pack
from isthmus_formats.checkpoint.rope import check_pairs
from isthmus_formats.checkpoint.source import MANIFEST, Source

JOURNAL = ".journal"
_AT_ONCE = 256 << 20  # bytes of the groups in work at a time; a larger group is alone
_BESIDE = (  # small files of a Hugging Face checkpoint that travel with it
    *("generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"),
)
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Target:
    """A checkpoint to write.

    Attributes:
        folder: where, which must not exist.
        format: its format.
        layout: its layout.
        dtype: data type of all floating-point parameters; None to leave them.
        shard_size: largest size of a file in bytes, for formats that divide by size.
        workers: threads.
    """

    folder: Path
    format: Format
    layout: Layout
    dtype: torch.dtype | None = None
    shard_size: int = 5 << 30
    workers: int = 2


@dataclass
class Group:
    """Pieces that share parameters, and are written together."""

    pieces: list[Piece] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)


def convert(source: Source, target: Target) -> dict[str, Any]:
    """Convert a checkpoint; return the manifest of the target.

    Raises:
        CheckpointError: the target exists, or cannot have this layout.
        OSError: a file cannot be written.
    """
    if os.path.lexists(target.folder):  # also as a symbolic link to nothing
        raise CheckpointError(f"{target.folder}: already exists; delete it or give another folder")
    if target.folder.resolve().is_relative_to(source.folder.resolve()):
        raise CheckpointError(f"{target.folder}: is inside the source {source.folder}; give another folder")
    pieces, shapes = _plan(source, target)
    hint = target.format.hint(source.model, target.layout)
    partial = target.folder.with_name(f".{target.folder.name}.isthmus-partial")
    make_folder(partial)
    with lock_file(partial) as ours:
        if not ours:
            raise CheckpointError(f"{target.folder}: another conversion is writing it; wait for it")
        try:
            with _Journal(partial, source, target, shapes) as journal:
                _write(source, target, pieces, journal)
                manifest = _finish(source, target, shapes, journal)
        except Exception as error:
            if not isinstance(error, OSError) or not (partial / JOURNAL).is_file():  # nothing to resume
                shutil.rmtree(partial, ignore_errors=True)
            raise
    for note in filter(None, (source.note, journal.note, hint)):
        say(note)
    return manifest


def groups(pieces: Sequence[Piece], read: Sequence[Piece] = ()) -> list[Group]:
    """Return the pieces to write in groups that share no parameter and no piece to read.

    Args:
        pieces: the pieces to write.
        read: the pieces of the source.
    """
    of: dict[str, Group] = {}
    for number, piece in enumerate((*read, *pieces)):
        names = [part.parameter.name for part in piece.slices]
        met = {id(of[name]): of[name] for name in names if name in of}
        group = next(iter(met.values())) if len(met) == 1 else Group()
        for other in met.values() if len(met) > 1 else ():
            group.pieces += other.pieces
            group.parameters |= other.parameters
        if number >= len(read):
            group.pieces.append(piece)
        group.parameters |= {part.parameter.name: part.parameter for part in piece.slices}
        of.update(dict.fromkeys(group.parameters if len(met) > 1 else names, group))
    return list({id(group): group for group in of.values()}.values())


def _plan(source: Source, target: Target) -> tuple[list[Piece], Shapes]:
    """Return the pieces of the target, and data type and shape of each."""
    model = source.model
    with report_damage(f"{source.folder}: the configuration", "correct config.json"):
        check_pairs(model.config, model.parameters, target.layout)
        pieces = list(target.format.pieces(model, target.layout))
        target.format.check_target(model, target.layout)

    def shapes() -> Shapes:
        return {(piece.file, piece.key): (_dtype(source, target, piece), piece.shape) for piece in pieces}

    pieces = target.format.assign_files(pieces, shapes(), target.shard_size)
    found = shapes()
    for (_, key), (dtype, _) in found.items():
        if dtype not in target.format.dtypes:
            raise CheckpointError(
                f"{key}: {target.format.name} cannot store the data type {name_of(dtype)}; give --dtype or "
                "another format"
            )
    return pieces, found


def _dtype(source: Source, target: Target, piece: Piece) -> torch.dtype:
    dtype = source.dtype(piece.slices[0].parameter)
    for part in piece.slices[1:]:
        try:
            dtype = torch.promote_types(dtype, other := source.dtype(part.parameter))
        except RuntimeError:  # 8-bit floating-point types and wide unsigned integers have no such operator
            raise CheckpointError(
                f"{piece.key}: {name_of(dtype)} and {name_of(other)} cannot be stored in one tensor"
            ) from None
    if target.dtype and dtype in _FLOATS and _is_cast(piece.slices[0].parameter):
        return target.dtype
    return dtype


def _check_cast(source: Source, target: Target) -> str:
    """Read every parameter that a cast could make infinite, before anything is written; return a note.

    Raises:
        CheckpointError: a finite value would become infinite or NaN.
    """
    if not (to := target.dtype):
        return ""
    read = {
        (piece.file, piece.key)
        for parameter in source.model.parameters
        for piece in source.pieces[parameter.name]
        if _is_cast(parameter) and (dtype := source.dtype(parameter)) in _FLOATS
        if torch.finfo(dtype).max > torch.finfo(to).max
    }
    large: list[tuple[Key, int, float]] = []
    small: list[int] = []
    room = _Room(_AT_ONCE)

    def work(key: Key) -> tuple[int, float, int]:
        tensor = source.tensors[key]
        with room.reserve(size(tensor.dtype, tuple(tensor.shape))):
            return _out_of_range(tensor, to)

    with Bar("check") as bar, ThreadPoolExecutor(target.workers) as pool:
        found = zip(sorted(read), pool.map(work, sorted(read)), strict=True)
        for done, (key, (beyond, largest, zeroed)) in enumerate(found, 1):
            large += [(key, beyond, largest)] if beyond else []
            small += [zeroed] if zeroed else []
            bar.count(done, len(read))
    if large:
        (file, name), beyond, largest = large[0]
        more = f" (and of {len(large) - 1} more tensors)" if len(large) > 1 else ""
        raise CheckpointError(
            f"{source.folder}: {beyond:,} values of {name}{f' of {file}' if file else ''}{more} exceed the range of "
            f"{name_of(to)}, {torch.finfo(to).max:g}: as large as {largest:g}; give a wider --dtype, or none"
        )
    if not small:
        return ""
    return f"{sum(small):,} values of {len(small)} tensors are too small for {name_of(to)} and become 0"


def _is_cast(parameter: Parameter) -> bool:
    # The bias of a router is a sum of small steps, in float32 whatever the model has.
    return parameter.role != "router.bias"


def _out_of_range(tensor: Readable, dtype: torch.dtype) -> tuple[int, float, int]:
    """Return the number of finite values that a cast makes infinite, the largest, and the number that become 0."""
    beyond, largest, zeroed = 0, 0.0, 0
    for part in tensor.read().reshape(-1).split(1 << 22):
        cast = part.to(dtype)
        lost = part[~cast.isfinite() & part.isfinite()]
        if lost.numel():
            beyond, largest = beyond + lost.numel(), max(largest, lost.abs().max().item())
        zeroed += int(part.count_nonzero() - cast.count_nonzero())
    return beyond, largest, zeroed


class _Journal:
    """The hidden folder of a conversion in work: where each tensor goes, and which are written.

    Attributes:
        folder: the folder.
        tensors: the tensors of the target.
        hashes: SHA-256 of the tensors that are written.
        note: a message for the user about the cast; empty if there is none.
    """

    def __init__(self, folder: Path, source: Source, target: Target, shapes: Shapes) -> None:
        self.folder = folder
        self.tensors: dict[Key, Stored] = {}
        self.hashes: dict[Key, str] = {}
        self.note = ""
        self._source, self._target, self._shapes = source, target, shapes
        self._path = self.folder / JOURNAL

    def __enter__(self) -> Self:
        job = self._job()
        if not self._resume(job):
            self._start(job)
        self._stream = self._path.open("a")
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def note_written(self, written: dict[Key, str]) -> None:
        """Note that tensors are written."""
        self.hashes.update(written)
        self._stream.write("\n" + json.dumps([[*key, sha] for key, sha in written.items()]))
        self._stream.flush()

    def finish(self) -> None:
        """Remove the journal and give the folder its name."""
        self._path.unlink()
        self.folder.rename(self._target.folder)

    def _job(self) -> dict[str, Any]:
        """Return what must be the same for a conversion to be resumed."""
        source, target = self._source, self._target
        return {
            "source": [str(source.folder.resolve()), source.format.name],
            "files": fingerprint(source.files()),
            "target": [target.format.name, asdict(target.layout), str(target.dtype), target.shard_size],
            "config": dict(source.model.config),
        }

    def _resume(self, job: dict[str, Any]) -> bool:
        """Load what an earlier conversion has written; return whether there was one."""
        if not self._path.is_file():
            return False
        with report_damage(self._path, "repeat the command to start again"):
            first, *lines = self._path.read_text().splitlines()
            head = json.loads(first)
            if head["job"] != json.loads(json.dumps(job)):
                return False
            self.note = head["note"]
            for file, key, path, parts in head["tensors"]:
                dtype, shape = self._shapes[file, key]
                self.tensors[file, key] = Stored(self.folder / path, dtype, shape, tuple(map(tuple, parts)))
            for line in lines:
                with suppress(ValueError):  # a line that was not written to its end
                    self.hashes.update({(file, key): sha for file, key, sha in json.loads(line)})
        with Bar("resume") as bar:  # a machine that lost power may have lost what was written last
            for done, (key, sha) in enumerate(list(self.hashes.items()), 1):
                if digest(self.tensors[key].read()) != sha:
                    del self.hashes[key]
                bar.at(key[1], done, len(self.tensors))
        say(f"resuming: {len(self.hashes)} of {len(self.tensors)} tensors are already written")
        return True

    def _start(self, job: dict[str, Any]) -> None:
        for each in self.folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        need = sum(size(*each) for each in self._shapes.values())
        if (free := shutil.disk_usage(self.folder).free) < need:
            raise CheckpointError(
                f"{self._target.folder}: needs {need:,} bytes, but the disk has {free:,} free"
            )
        self.note = _check_cast(self._source, self._target)
        model, layout = self._source.model, self._target.layout
        try:
            self.tensors = self._target.format.create(self.folder, self._shapes, model, layout)
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(self._target.folder)) from None
        for each in self.folder.rglob("*"):
            each.chmod(0o750 if each.is_dir() else 0o640)
        places = [
            [*key, str(each.path.relative_to(self.folder)), each.parts] for key, each in self.tensors.items()
        ]
        write_file(self._path, json.dumps({"job": job, "note": self.note, "tensors": places}).encode())


def _write(source: Source, target: Target, pieces: list[Piece], journal: _Journal) -> None:
    """Write every piece that is not written yet, several groups at a time."""
    room = _Room(_AT_ONCE)
    sizes = {key: tensor.bytes for key, tensor in journal.tensors.items()}
    read = {id(piece): piece for holding in source.pieces.values() for piece in holding}
    waiting = [
        group
        for group in groups(pieces, list(read.values()))
        if any((each.file, each.key) not in journal.hashes for each in group.pieces)
    ]

    def work(group: Group) -> dict[Key, str]:
        with room.reserve(sum(sizes[each.file, each.key] for each in group.pieces)):
            return _write_group(source, target, group, journal.tensors)

    total = sum(sizes.values())
    with Bar(target.folder.name, of_bytes=True) as bar, ThreadPoolExecutor(target.workers) as pool:
        written = sum(sizes[key] for key in journal.hashes)
        results = [pool.submit(work, group) for group in waiting]
        try:
            for result in as_completed(results):
                hashes = result.result()
                journal.note_written(hashes)
                written += sum(sizes[key] for key in hashes)
                bar.count(written, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_group(source: Source, target: Target, group: Group, tensors: dict[Key, Stored]) -> dict[Key, str]:
    parameters = source.parameters(group.parameters.values())
    hashes = {}
    for piece in group.pieces:
        key = (piece.file, piece.key)
        stored = pack(piece, [each.of(parameters[each.parameter.name]) for each in piece.slices])
        hashes[key] = tensors[key].write(stored.to(tensors[key].dtype))
    return hashes


def _finish(source: Source, target: Target, shapes: Shapes, journal: _Journal) -> dict[str, Any]:
    """Write the manifest and the small files, and give the target its name."""
    for name in _BESIDE:
        if (source.folder / name).is_file() and not (journal.folder / name).exists():
            write_file(journal.folder / name, (source.folder / name).read_bytes())
    config = dict(source.model.config)
    if target.dtype:
        config.pop("torch_dtype", None)
        config["dtype"] = name_of(target.dtype)
    write_file(journal.folder / "config.json", _configuration(source.folder / "config.json", config))
    manifest = {
        "format": target.format.name,
        "layout": asdict(target.layout),
        "config": config,
        "tensors": [
            [*key, DTYPE_NAMES[dtype], shape, journal.hashes[key]] for key, (dtype, shape) in shapes.items()
        ],
    }
    write_file(journal.folder / MANIFEST, json.dumps(manifest).encode())
    journal.finish()
    return manifest


def _configuration(own: Path, config: dict[str, Any]) -> bytes:
    """Return the config.json of the target: the source's own one if it has this content."""
    with suppress(CheckpointError):  # without one, or damaged: another one was given
        if read_config(own) == config:
            return own.read_bytes()
    return json.dumps(config, indent=2).encode()


class _Room:
    """Limits the bytes in work; what is larger than the limit is alone."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used, self._changed = limit, 0, Condition()

    @contextmanager
    def reserve(self, wanted: int) -> Iterator[None]:
        """Wait until that many bytes fit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + wanted <= self._limit)
            self._used += wanted
        try:
            yield
        finally:
            with self._changed:
                self._used -= wanted
                self._changed.notify_all()
