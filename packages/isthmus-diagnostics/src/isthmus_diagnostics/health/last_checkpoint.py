"""The checkpoint that a rank writes before it dies: on SIGTERM, or on an error such as the death of a peer.

Parameters and optimizer states are consistent except during an optimizer's step, and between the steps of two
optimizers. On SIGTERM the main thread saves at the end of its step. If it does not reach that in time, as it waits
for a dead peer, the watching thread saves, unless an optimizer is in its step.
"""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from isthmus_common.files import make_file
from isthmus_common.progress import say
from isthmus_common.ranks import rank

_PATIENCE = (
    5.0  # seconds that the main thread has to end its step, and an optimizer its own; torchrun kills after 30
)


class LastCheckpoint:
    """Saves once.

    Args:
        folder: gets ``last-<rank>.pt``.
        save: returns what to save with :func:`torch.save`.
        saves_early: also save before the first step of this process: to the file if there is none yet, otherwise to
            ``last-<rank>.no-step.pt``.
    """

    def __init__(self, folder: Path, save: Callable[[], Any], saves_early: bool = True) -> None:
        self.path = folder / f"last-{rank()}.pt"
        self._save = save
        self._saves_early = saves_early
        self.has_stepped = False  # an optimizer, at least once
        self._lock = threading.Lock()
        self._is_saved = False
        self._asked = 0.0
        self._former: Any = None
        self._wake: tuple[int, int] | None = None
        self._process = os.getpid()
        self.is_stepping = False  # in an optimizer's step
        self.is_between = False  # after one optimizer's step and before that of another

    def listen(self) -> None:
        """Handle SIGTERM from now on, unless the program does or this is not the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # The handler runs in the main thread, which may be in a collective: the pipe tells the other thread.
            self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._former = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
            signal.signal(signal.SIGTERM, self._asked_to_end)

    def forget(self) -> None:
        """Restore the default."""
        if self._wake is not None:
            if self._handles():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(self._former)
            for each in self._wake:
                os.close(each)
            self._wake = None

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        self._asked = self._asked or time.monotonic()

    def _handles(self) -> bool:
        """Return whether the program has left SIGTERM to this object."""
        return signal.getsignal(signal.SIGTERM) == self._asked_to_end

    def end_if_asked(self) -> None:
        """Save and end the process, if SIGTERM has arrived; called by the main thread before and after steps."""
        if self._asked and not self.is_between:
            try:
                self.save("SIGTERM")
            finally:
                _end()

    def check(self) -> None:
        """Do the same if the main thread does not; called by the watching thread."""
        if self._wake is not None and not self._asked:
            try:
                if signal.SIGTERM in os.read(self._wake[0], 4096) and self._handles():
                    self._asked = time.monotonic()
            except BlockingIOError:
                return
        waited = time.monotonic() - self._asked if self._asked else 0.0
        if waited > 2 * _PATIENCE or (waited > _PATIENCE and not self.is_stepping):
            where = ", between the steps of two optimizers" if self.is_between else ""
            try:
                if not self.save(f"SIGTERM, in a step that does not end{where}") and self.is_stepping:
                    say("health: SIGTERM, in an optimizer's step that does not end: no checkpoint")
            finally:
                _end()

    def save(self, why: str) -> bool:
        """Write the file, beside its place and then renamed; return whether this call was the one to try it."""
        if os.getpid() != self._process:
            return False
        with self._lock:
            if self._is_saved or self.is_stepping:
                return False
            self._is_saved = True
            if not (self.has_stepped or self._saves_early):
                say(f"health: {why}: no checkpoint before the first step of an optimizer")
                return True
            if not self.has_stepped and self.path.exists():  # that of an earlier process is worth more
                self.path = self.path.with_suffix(".no-step.pt")
            beside = self.path.with_suffix(".part")
            try:
                make_file(beside)
                torch.save(self._save(), beside)
                beside.replace(self.path)
            except (
                Exception
            ) as error:  # errors of the program's function, or a full disk: RuntimeError of torch.save
                with contextlib.suppress(OSError):
                    beside.unlink(missing_ok=True)
                say(f"health: {why}: no checkpoint: {type(error).__name__}: {error}")
                return True
        say(f"health: {why}: saved {self.path}")
        return True


def _end() -> None:
    """End this process by SIGTERM, from any thread."""
    ctypes.CDLL(None).signal(signal.SIGTERM, None)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
