"""When to stop before the batch system does it: a run that is ended by the clock loses all epochs since its last checkpoint.

Two things ask for it: SIGUSR1, which `sbatch --signal=B:USR1@120` and `scancel --signal=USR1` send, and the job's end
coming nearer than `--stop-before` seconds. Each rank looks for itself, at the end of an epoch; the epoch loop makes it
one decision of all ranks. A signal handler is the one thing that cannot be passed as an argument, and it must be there
long before the run is: the object that is the process's handler is therefore the one that is asked.
"""

import signal
import time

# Tells the job script that the run is not done and goes on with --resume; sysexits.h and launchers use none of these.
EXIT_STOPPED = 85


class StopRequest:
    """Remembers whether SIGUSR1 came. `is_due()` is asked once an epoch."""

    def __init__(self):
        self.signalled = False
        self._deadline = None

    def __call__(self, number, frame):
        """What the interpreter calls when the signal comes."""
        self.signalled = True

    @classmethod
    def of_this_process(cls):
        """The request that listens to SIGUSR1 in this process, from now on if none did. Main thread only."""
        present = signal.getsignal(signal.SIGUSR1)
        if not isinstance(present, cls):
            present = cls()
            signal.signal(signal.SIGUSR1, present)
        return present

    def set_deadline(self, end_time, seconds_before):
        """Be due `seconds_before` seconds before `end_time` (seconds since 1970); None or 0 seconds: never."""
        self._deadline = end_time - seconds_before if end_time is not None and seconds_before else None

    def is_due(self):
        """Whether this rank has been asked to stop, or its time is nearly up."""
        return self.signalled or (self._deadline is not None and time.time() >= self._deadline)

    def reason(self):
        """Why, in words."""
        return (
            "SIGUSR1" if self.signalled else "the job's end is near" if self.is_due() else "another rank was asked to"
        )
