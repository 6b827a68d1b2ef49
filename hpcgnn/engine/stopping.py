"""An orderly stop before the batch system or the user ends the run: a sudden end loses all epochs since the checkpoint.

There are three triggers. SIGUSR1 comes from `sbatch --signal=B:USR1@120` and `scancel --signal=USR1`. Ctrl-C (SIGINT)
counts while epochs run. The third is the job's end, when it is nearer than `--stop-before` seconds. Each rank checks
for itself at the end of an epoch, and the epoch loop makes it one decision of all ranks.

A StopRequest is itself the signal handler of the process. The handler must exist long before the run, and a run cannot
get it as an argument.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Self

# For the job script: the run is not done and goes on with --resume. sysexits.h and launchers use none of these.
EXIT_STOPPED = 85
# One Ctrl-C may reach a process twice: from the terminal, and passed on by the launcher.
_SECONDS_OF_ONE_PRESS = 0.5


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class StopRequest:
    """Remembers whether a signal came. `is_due()` is asked once an epoch."""

    def __init__(self) -> None:
        self.signalled = False
        self._signal, self._speaks = signal.SIGUSR1, False
        self._deadline: float | None = None
        self._pressed: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. A second Ctrl-C raises KeyboardInterrupt."""
        if number == signal.SIGINT:
            self._press()
        self.signalled, self._signal = True, signal.Signals(number)

    def _press(self) -> None:
        now = time.monotonic()
        if self._pressed is None:
            self._pressed = now
            if self._speaks:  # not by print: the signal may have come in the middle of one
                os.write(
                    2,
                    b"\nhpcgnn: Ctrl-C: stopping after this epoch, with a checkpoint; press it again to end at once\n",
                )
        elif now - self._pressed > _SECONDS_OF_ONE_PRESS:
            raise KeyboardInterrupt("ended at once by a second Ctrl-C; continue from the last checkpoint with --resume")

    @classmethod
    def of_this_process(cls) -> Self:
        """The request that listens to SIGUSR1 in this process, from now on if none did. In a thread that is not the
        main one, signals cannot be handled: a request that none reaches.
        """
        present = signal.getsignal(signal.SIGUSR1)
        if not isinstance(present, cls):
            present = cls()
            if _in_main_thread():
                signal.signal(signal.SIGUSR1, present)
        return present

    @contextlib.contextmanager
    def of_ctrl_c(self, speaks: bool) -> Iterator[None]:
        """Turn Ctrl-C into a request to stop while the body runs. Outside, it ends the process, with nothing to lose.

        If Ctrl-C is ignored, as in background jobs, it stays ignored.

        Args:
            speaks: whether this rank announces the stop.
        """
        before = signal.getsignal(signal.SIGINT)
        self._pressed, self._speaks = None, speaks
        if before == signal.SIG_IGN or not _in_main_thread():
            yield
            return
        signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def set_deadline(self, end_time: float | None, seconds_before: float) -> None:
        """Be due `seconds_before` seconds before `end_time` (seconds since 1970); None or 0 seconds: never."""
        self._deadline = end_time - seconds_before if end_time is not None and seconds_before else None

    def is_due(self) -> bool:
        """Whether this rank has been asked to stop, or its time is nearly up."""
        return self.signalled or (self._deadline is not None and time.time() >= self._deadline)

    def reason(self) -> str:
        """Why, in words."""
        if self.signalled:
            return "Ctrl-C" if self._signal == signal.SIGINT else self._signal.name
        return "the job's end is near" if self.is_due() else "another rank was asked to"
