"""The server: one process of a node, which imports the modules of a rank, and forks a rank for each proxy."""

import contextlib
import ctypes
import gc
import marshal
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass

from hpcgnn import cores
from hpcgnn.fork_server.proxy import FORKED, LENGTH, SIGNALS, STATUS, address, owner

_SECONDS_TO_COME = 60.0
# A proxy sends its request at once.
_SECONDS_TO_READ = 10.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class StartRequest:
    """The request of a proxy: a rank with this environment, folder and arguments.

    Attributes:
        affinity: cores of the proxy.
        descriptors: standard input, output and error, and the launcher's channel if there is one.
    """

    environment: dict[str, str]
    folder: str
    arguments: list[str]
    affinity: frozenset[int]
    descriptors: list[int]


def read_request(connection: socket.socket) -> StartRequest | None:
    """Read the request of a proxy; None if it has ended or stands still, or is another user's."""
    pid, user = owner(connection)
    if user != os.getuid():
        return None
    connection.settimeout(_SECONDS_TO_READ)
    descriptors: list[int] = []
    with contextlib.suppress(OSError):  # the proxy has ended, or stands still
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 16)
        more = data
        while more and (len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]):
            more = connection.recv(1 << 20)
            data += more
        if more:
            environment, folder, arguments = marshal.loads(data[LENGTH.size :])
            affinity = frozenset(os.sched_getaffinity(pid))
            return StartRequest(environment, folder, arguments, affinity, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return None


def listen(name: str) -> socket.socket:
    """The socket of a server. Raises OSError where another process has it."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address(name))
    listening.listen(1024)
    return listening


class ForkServer:
    """Forks ranks.

    Args:
        listening: of `listen`.
        expected: number of proxies, after whose end the server ends; None: it serves until it is killed.
    """

    def __init__(self, listening: socket.socket, expected: int | None = None) -> None:
        self._listening, self._expected, self._requests = listening, expected, 0
        self._deadline = time.monotonic() + _SECONDS_TO_COME
        # {handle of a rank's process: (its number, the connection to its proxy)}
        self._ranks: dict[int, tuple[int, socket.socket]] = {}
        self._selector = selectors.DefaultSelector()

    def serve(self) -> StartRequest:
        """Return in each rank, with the request of its proxy. In the server it does not return."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which are for the ranks
        self._selector.register(self._listening, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()  # or each rank copies all pages at its first collection
        while not self._done():
            for key, _ in self._selector.select(1.0):
                if key.fileobj is self._listening:
                    if (request := self._fork()) is not None:
                        return request
                elif isinstance(key.fileobj, int):
                    self._tell_end(key.fileobj)
                elif key.data in self._ranks:  # its proxy was killed, and so is the rank
                    self._selector.unregister(key.fileobj)
                    signal.pidfd_send_signal(key.data, signal.SIGKILL)
        os._exit(0)

    def _done(self) -> bool:
        if self._expected is None or self._ranks:
            return False
        return self._requests >= self._expected or time.monotonic() > self._deadline

    def _fork(self) -> StartRequest | None:
        """Fork a rank for the next proxy. Returns its request in the rank, and None in the server."""
        connection, _ = self._listening.accept()
        request = read_request(connection)
        if request is None:
            connection.close()
            return None
        self._requests += 1
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._forget()
            return request
        handle = os.pidfd_open(pid)
        self._ranks[handle] = pid, connection
        self._selector.register(handle, selectors.EVENT_READ)
        self._selector.register(connection, selectors.EVENT_READ, handle)
        with contextlib.suppress(OSError):  # a proxy that has ended: its connection shows it
            socket.send_fds(connection, [FORKED], [handle])
        for descriptor in request.descriptors:
            os.close(descriptor)
        return None

    def _tell_end(self, handle: int) -> None:
        """Reap a rank, and send its status to the proxy."""
        pid, connection = self._ranks.pop(handle)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(handle)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(STATUS.pack(status))
        connection.close()
        os.close(handle)

    def _forget(self) -> None:
        """In a rank: close the files of the server and of other ranks."""
        self._selector.close()
        self._listening.close()
        for handle, (_, connection) in self._ranks.items():
            os.close(handle)
            connection.close()


def become_rank(request: StartRequest, server: int) -> None:
    """Take over files, environment, folder, cores and arguments of a request. server: the process that forked this one.

    Signals stay blocked until the rank listens to them.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before that
        os._exit(1)
    os.setpgid(0, 0)  # signals come by the proxy, once
    for number, descriptor in enumerate(request.descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    if len(request.descriptors) > 3:
        os.environ["PMI_FD"] = str(request.descriptors[3])
    os.chdir(request.folder)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, request.affinity)
    cores.usable.cache_clear()
    sys.argv[1:] = request.arguments
