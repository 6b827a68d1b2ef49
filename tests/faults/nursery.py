"""Ranks that start in no time: forked from a process that has loaded torch, so that hundreds of jobs are a matter of
minutes.

The launcher starts `stub.py`, which hands its files and environment to this server and lives and dies with the process
that the server forks for it: ended by the same signal or with the same code, and the other way round. To the launcher
and to the rest of the job it is the rank.
"""

import array
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback

from inject import main as run_with_fault  # noqa: E402


def load_everything():
    """What a rank imports, without starting MPI."""
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    import matplotlib.pyplot  # noqa: F401

    import hpcgnn.__main__  # noqa: F401
    import hpcgnn.app.train  # noqa: F401
    import hpcgnn.comm.transports.mpi  # noqa: F401

    hpcgnn.__main__.registry_choices()
    gc.freeze()  # or every rank copies all pages at its first collection


def receive(connection):
    """(what the stub says, its file descriptors)."""
    descriptors = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_LEN(16 * descriptors.itemsize))
    for level, kind, part in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(part)
    while not data.endswith(b"\n"):
        more = connection.recv(1 << 20)
        if not more:  # the launcher ended it before it had said anything
            return None, list(descriptors)
        data += more
    return json.loads(data), list(descriptors)


def run(arguments, folder):
    """What the stub was started with: `-m hpcgnn …` or `-c PROGRAM …`, read as Python reads them, or a fault and its
    job.
    """
    if arguments[0] not in ("-m", "-c"):
        return run_with_fault(arguments)
    sys.path[0], sys.argv = folder, [arguments[0], *arguments[2:]]
    if arguments[0] == "-m":
        sys.modules.pop(f"{arguments[1]}.__main__", None)  # or runpy warns of it
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    return 0


def live(said, descriptors, server):
    """Be the rank; never returns."""
    code = 1
    try:
        server.close()
        os.setsid()
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(said["environment"])
        if len(descriptors) > 3:
            os.environ["PMI_FD"] = str(descriptors[3])
        os.chdir(said["folder"])
        code = run(said["arguments"], said["folder"]) or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not _exit: MPICH takes its leave of the launcher in a handler of the C library's.
        ctypes.CDLL(None).exit(code)


def serve(path):
    """Fork a rank for every stub that asks, until standard input is closed."""
    load_everything()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    selector, connections = selectors.DefaultSelector(), {}
    selector.register(server, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    try:
        while True:
            for key, _ in selector.select(0.02):
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is server:
                    connection, _ = server.accept()
                    said, descriptors = receive(connection)
                    pid = os.fork() if said is not None else None
                    if pid == 0:
                        live(said, descriptors, server)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if pid is None:
                        connection.close()
                        continue
                    connections[pid] = connection
                    selector.register(connection, selectors.EVENT_READ, pid)
                else:  # the stub was killed, and so is its rank, stopped or not
                    selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
            _bury(connections, selector)
    finally:
        for pid in connections:
            os.kill(pid, signal.SIGKILL)


def _bury(connections, selector):
    """Tell the stubs of ranks that have ended how they did."""
    while connections:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        connection = connections.pop(pid)
        if connection in {key.fileobj for key in selector.get_map().values()}:
            selector.unregister(connection)
        try:
            connection.sendall(status.to_bytes(4, "little"))
        except OSError:
            pass
        connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
