"""The folder of an unfinished run, beside its output: a killed run resumes from its last saved state."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from isthmus_common.files import lock_file, make_file, make_folder, write_file
from isthmus_common.progress import say
from isthmus_common.text import count
from isthmus_formats.data.records import DataError
from isthmus_formats.data.sources import Position

_SAVE_S = 2.0  # between two saved states
_LOCK = "lock"


class Work:
    """The state of a run: a place in the input, counts, and files that grow.

    Args:
        folder: is deleted by :meth:`publish`.
        key: what the result depends on; the state of a run with another key is dropped.

    Attributes:
        position: where to resume.
        counts: statistics up to there.
    """

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self.folder = folder
        self._key = json.loads(json.dumps(key, default=str))
        state = self._state()
        if state.get("key") != self._key:
            for path in [each for each in folder.iterdir() if each.name != _LOCK]:
                path.unlink()
            state = {}
        self.position = Position(*state.get("position", ()))
        self.counts = Counter[str](state.get("counts", {}))
        self._sizes: dict[str, int] = state.get("sizes", {})
        self._growing: dict[str, IO[bytes]] = {}
        self._saved = time.monotonic()

    def _state(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / "state.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return {}

    def grow(self, name: str) -> IO[bytes]:
        """Return a file of the folder to append to; what was written after the last saved state is cut off."""
        stream = self.create(name, "ab")
        stream.truncate(self._sizes.get(name, 0))
        stream.seek(0, os.SEEK_END)
        self._growing[name] = stream
        return stream

    def create(self, name: str, mode: str = "wb") -> IO[bytes]:
        """Return a file of the folder to write to."""
        make_file(self.folder / name)
        return (self.folder / name).open(mode)

    def advance(self, position: Position, counts: Mapping[str, int]) -> None:
        """Note that the results up to a place of the input were written."""
        self.position = position
        self.counts.update(counts)
        if time.monotonic() - self._saved > _SAVE_S:
            self.save()

    def save(self) -> None:
        """Save the state."""
        for name, stream in self._growing.items():
            stream.flush()
            os.fsync(stream.fileno())
            self._sizes[name] = stream.tell()
        state = {
            "key": self._key, "position": self.position, "counts": self.counts, "sizes": self._sizes
        }  # fmt: skip
        write_file(self.folder / "state.json", json.dumps(state).encode())
        self._saved = time.monotonic()

    def forget(self) -> None:
        """Delete the saved state, from which nothing can be resumed."""
        (self.folder / "state.json").unlink(missing_ok=True)

    def publish(self, names: Mapping[str, Path]) -> None:
        """Rename files of the folder to their places outside, in their order, and delete the folder."""
        for name in names:
            with (self.folder / name).open("rb") as stream:
                os.fsync(stream.fileno())
        for name, target in names.items():
            (self.folder / name).replace(target)
        shutil.rmtree(self.folder)


def refuse_existing(files: Iterable[Path]) -> None:
    """Check that none of the files of an output exists.

    Raises:
        DataError: one does.
    """
    for path in files:
        if os.path.lexists(path):
            raise DataError(f"{path}: already exists; delete it or give another output")


@contextmanager
def work(output: Path, key: Mapping[str, Any], dry_run: bool, files: Sequence[Path] = ()) -> Iterator[Work]:
    """Open the folder of a run; if no state was saved in it, it is deleted after an error.

    Args:
        output: the file that the run writes.
        key: see :class:`Work`.
        dry_run: the folder is a temporary one.
        files: the files of the output; none may exist unless the run resumes.

    Raises:
        DataError: the file cannot be written; its text has the remedy.
    """
    if not output.parent.is_dir():
        raise DataError(f"{output}: no such folder: {output.parent}; create it with mkdir -p")
    folder = output.with_name(f".{output.name}.isthmus-work")
    state = None
    try:
        if dry_run:
            with tempfile.TemporaryDirectory() as folder_of_nothing:
                yield Work(Path(folder_of_nothing), key)
            return
        make_folder(folder)
        make_file(folder / _LOCK)
        with lock_file(folder / _LOCK) as ours:
            if not ours:
                raise DataError(f"{folder}: another run is writing the same output; wait for its end")
            state = Work(folder, key)
            if state.position.total:
                say(f"{output}: resuming after {count(state.position.total, 'row')}")
            else:
                refuse_existing(files)
            yield state
    except OSError as error:
        remedy = "; give an output in another folder" if state is None else ""
        if state and (folder / "state.json").exists():
            remedy = "; the same command resumes"
        raise DataError(f"{error.filename or output}: {error.strerror or error}{remedy}") from None
    finally:
        if state and not (folder / "state.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
