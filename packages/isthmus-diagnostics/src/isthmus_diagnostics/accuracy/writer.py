"""The files of a dump: one folder for each rank, with an index to which lines are appended, and files of tensors.

``rank-0/index.jsonl`` has a line for each tensor and each call, tensors before the calls that use them. A line is
written when everything that it names is on disk, so the dump of a crashed job can be read up to the crash.
"""

import json
import os
import time
from io import FileIO
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from isthmus_common.files import make_folder, write_file
from isthmus_diagnostics.accuracy.statistics import COLUMNS, elements, measure, read

FORMAT = 1
INDEX, ABOUT = "index.jsonl", "about.json"
_ROWS = 4096
_BYTES = 64 << 20  # size of one file of tensors
_SECONDS = 2.0  # between writes, so that little is lost with a killed process


class Writer:
    """Writes the dump of one rank.

    Args:
        folder: of the rank; created.
        hashed: compute hashes.
        tensors: keep the tensors themselves too.
    """

    def __init__(self, folder: Path, hashed: bool, tensors: bool) -> None:
        self.folder = folder
        self.hashed = hashed
        self.keeps_tensors = tensors
        self._lines: list[dict[str, Any]] = []
        self._rows: dict[torch.device, _Rows] = {}
        self._kept: dict[str, torch.Tensor] = {}
        self._kept_bytes = 0
        self._files = 0
        self._file: FileIO | None = None
        self._written = time.monotonic()

    def write_facts(self, document: dict[str, Any]) -> None:
        """Write what is known of the job."""
        write_file(self.folder / ABOUT, json.dumps(document, indent=1, default=str).encode())

    def start(self, document: dict[str, Any]) -> None:
        """Write what is known of the job, and start the index."""
        make_folder(self.folder)
        self.write_facts(document)
        self._file = FileIO(self.folder / INDEX, "w")
        os.fchmod(self._file.fileno(), 0o640)

    def add_line(self, line: dict[str, Any]) -> None:
        """Add a line of the index."""
        self._lines.append(line)
        if time.monotonic() - self._written > _SECONDS:
            self.flush()

    def add_tensor(self, line: dict[str, Any], tensor: torch.Tensor) -> None:
        """Add the line of a tensor, and compute its statistics on its device."""
        rows = self._rows.get(tensor.device)
        if rows is None:
            rows = self._rows[tensor.device] = _Rows(tensor.device)
        if rows.is_full:
            self.flush()
        measure(tensor, rows.rows, len(rows.lines), self.hashed)
        rows.lines.append(line)
        rows.counts.append(elements(tensor))
        if self.keeps_tensors:
            self._keep(line, tensor)
        self.add_line(line)

    def _keep(self, line: dict[str, Any], tensor: torch.Tensor) -> None:
        line["file"] = f"tensors-{self._files:05d}.safetensors"
        host = tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
        self._kept[str(line["tensor"])] = torch.view_as_real(host) if host.is_complex() else host
        self._kept_bytes += host.nbytes
        if self._kept_bytes >= _BYTES:
            self._save()

    def _save(self) -> None:
        if self._kept:
            write_file(
                self.folder / f"tensors-{self._files:05d}.safetensors", safetensors.torch.save(self._kept)
            )
            self._files += 1
            self._kept, self._kept_bytes = {}, 0

    def flush(self) -> None:
        """Write what has been added."""
        self._written = time.monotonic()
        self._save()
        for rows in self._rows.values():
            rows.fill(self.hashed)
        if self._file is not None and self._lines:
            self._file.write("".join(_json(line) + "\n" for line in self._lines).encode())
        self._lines = []

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


class _Rows:
    """Statistics on one device that have not been read."""

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.empty(_ROWS, COLUMNS, dtype=torch.float64, device=device)
        self.lines: list[dict[str, Any]] = []
        self.counts: list[int] = []

    @property
    def is_full(self) -> bool:
        return len(self.lines) == _ROWS

    def fill(self, hashed: bool) -> None:
        """Complete the lines."""
        if not self.lines:
            return
        if self.rows.device.type != "cpu":
            torch.accelerator.synchronize(self.rows.device)
        for line, found in zip(
            self.lines, read(self.rows[: len(self.lines)], self.counts, hashed), strict=True
        ):
            line["values"] = found[:7]
            if hashed:
                line["hash"] = found.hash
        self.lines, self.counts = [], []


_json = json.JSONEncoder(separators=(",", ":"), default=str).encode  # NaN as Python writes and reads it
