"""The process that a launcher starts as a rank, where the rank itself is forked by `server.py`.

    python -ISs proxy.py SOCKET ARGUMENTS…

It hands its files, environment, folder and arguments to the server, passes signals on to the rank, and ends as the rank
does: with the same code or by the same signal. A rank pays for it with some MiB, so it imports little.
"""

import marshal
import os
import signal
import socket
import struct
import sys
import time

# The server's answer when the rank runs; a handle of its process comes along.
FORKED = b"+"
LENGTH, STATUS = struct.Struct("<Q"), struct.Struct("<i")
# A proxy forwards these to its rank.
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# The first rank of a node may start later than the others.
_SECONDS_TO_LISTEN = 60.0


def address(name: str) -> str:
    """The socket's address: `@NAME` is one without a file."""
    return "\0" + name[1:] if name.startswith("@") else name


def owner(connection: socket.socket) -> tuple[int, int]:
    """(process, user) at the other end."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _connect(name: str) -> socket.socket:
    """Raises OSError where no server of this user listens."""
    end = time.monotonic() + _SECONDS_TO_LISTEN
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address(name))
            break
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    if owner(connection)[1] != os.getuid():
        raise PermissionError("the server is another user's")
    return connection


def _ask(connection: socket.socket, arguments: list[str]) -> None:
    """Send the request. The proxy's copy of the launcher's channel stays open: some end a rank that closes it."""
    channel = os.environ.get("PMI_FD", "")
    descriptors = [0, 1, 2] + ([int(channel)] if channel.isdigit() else [])
    text = marshal.dumps((dict(os.environ), os.getcwd(), arguments))
    text = LENGTH.pack(len(text)) + text
    connection.sendall(text[socket.send_fds(connection, [text], descriptors) :])


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has left one
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def main(name: str, *arguments: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until there is a rank to pass them on to
    reason = "it ended before the rank was forked"
    try:
        connection = _connect(name)
        _ask(connection, list(arguments))
        answer, handles, _, _ = socket.recv_fds(connection, len(FORKED), 1)
    except OSError as error:
        answer, reason = b"", str(error)
    if answer != FORKED:
        os.write(2, f"hpcgnn: error: no fork server: {reason}; start with HPCGNN_FORK_SERVER=0\n".encode())
        os._exit(1)

    def forward(number: int, frame: object) -> None:
        try:
            signal.pidfd_send_signal(handles[0], number)
        except ProcessLookupError:  # it has just ended
            pass

    for number in SIGNALS:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    status = connection.recv(STATUS.size, socket.MSG_WAITALL)
    # A server that is killed takes its ranks with it.
    _end_like(STATUS.unpack(status)[0] if len(status) == STATUS.size else signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
