"""A client of mpiexec's key-value space that needs no MPI library: lines of text on a file descriptor (PMI-1).

Every mpiexec of the MPICH family gives each rank such a descriptor. With it, a rank publishes its address to ranks on
any node, without a typed address.
"""

import contextlib
import os
import select
import time
from typing import ClassVar

from hpcgnn.errors import ConfigError

# Time for the launcher to act before this process ends by itself.
_SECONDS_TO_ABORT = 5.0


class Pmi:
    """A rank's connection to its launcher.

    Once it is open, the launcher takes an end without `finish` for a failure, and ends the other ranks.

    Attributes:
        limit: seconds to wait for an answer, 0 for ever.
        opened: the connection of this process, as a process has one MPI.
    """

    opened: ClassVar["Pmi | None"] = None

    def __init__(self, descriptor: int, limit: float) -> None:
        self._line, self._limit, self._rest = descriptor, limit, b""
        self._ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")
        self._space = self._ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"]
        Pmi.opened = self

    def put(self, key: str, value: str) -> None:
        """Tell the others something, without spaces, that they find after `barrier`."""
        self._ask(f"cmd=put kvsname={self._space} key={key} value={value}", "put_result")

    def barrier(self) -> None:
        """Wait for all ranks. Collective."""
        self._ask("cmd=barrier_in", "barrier_out")

    def get(self, key: str) -> str:
        """Return the value that some rank has put under a key."""
        return self._ask(f"cmd=get kvsname={self._space} key={key}", "get_result")["value"]

    def finish(self) -> None:
        """Tell the launcher that this rank ends in order."""
        self._ask("cmd=finalize", "finalize_ack")
        Pmi.opened = None

    def abort(self, code: int) -> None:
        """Have the launcher end all ranks, with this code."""
        with contextlib.suppress(OSError):
            os.write(self._line, f"cmd=abort exitcode={code}\n".encode())
            select.select([self._line], [], [], _SECONDS_TO_ABORT)

    def _ask(self, request: str, expected: str) -> dict[str, str]:
        end = time.monotonic() + self._limit
        try:
            os.write(self._line, f"{request}\n".encode())
            while b"\n" not in self._rest:
                left = max(0.0, end - time.monotonic()) if self._limit else None
                if not select.select([self._line], [], [], left)[0]:
                    raise ConfigError(
                        f"mpiexec has not answered {request.split()[0]!r} in {self._limit:g} s (--watchdog): not all "
                        "ranks have come"
                    )
                more = os.read(self._line, 4096)
                if not more:
                    raise OSError("it has closed the line")
                self._rest += more
        except OSError as error:
            raise ConfigError(f"cannot speak with mpiexec (PMI_FD={self._line}): {error}") from error
        line, _, self._rest = self._rest.partition(b"\n")
        answer = dict(word.split("=", 1) for word in line.decode().split() if "=" in word)
        if answer.get("cmd") != expected or answer.get("rc", "0") != "0":
            raise ConfigError(f"expected {expected!r} from mpiexec for {request!r}, got {line.decode()!r}")
        return answer
