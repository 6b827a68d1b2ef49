"""Posting the messages of a turn: one by one, as `exchange` does, and prepared, as the turns of a stream are.

One rank sends to itself as many small messages as a rank of a large job has peers, and receives them. What is counted
is the processor time of the thread that posts them (the median of some turns), which is serial whatever the number of
threads. Beside it: what the helper thread takes for a look at messages that have not come.
"""

import argparse
import statistics
import time


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--peers", type=int, default=1023, help="messages each way (default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=256, help="bytes of a message (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=25, help="turns to take the median of (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the figures; returns the exit code."""
    import mpi4py

    mpi4py.rc.thread_level = "multiple"
    import torch
    from mpi4py import MPI
    from tabulate import tabulate

    from hpcgnn.comm.transports.mpi import MpiCommunicator

    comm = MpiCommunicator(MPI.COMM_SELF, 1.0)
    outgoing, incoming = (
        [(0, torch.zeros(options.bytes, dtype=torch.uint8)) for _ in range(options.peers)] for _ in "12"
    )

    def posting(begin):
        """Milliseconds of the thread for a turn, of each turn; waiting for the messages is no part of it."""
        found = []
        for _ in range(options.turns):
            start = time.thread_time()
            under_way = begin()
            found.append(1000 * (time.thread_time() - start))
            under_way.finish()
        return found

    one_by_one = statistics.median(posting(lambda: comm.exchange(outgoing, incoming, "rows")))
    messages = comm.prepare(outgoing, incoming, "rows")
    first, second, *others = posting(messages.begin)
    prepared = statistics.median(others)
    rows = [
        ("posted one by one", one_by_one, 1.0),
        ("prepared, the first time (one by one)", first, None),
        ("prepared, the second time (requests are made)", second, None),
        ("prepared, from then on", prepared, one_by_one / prepared),
    ]
    waiting = comm.exchange([], incoming, "late")
    requests = waiting._receives

    def look(at):
        start = time.thread_time()
        for _ in range(100):
            assert not at()
        return 10 * (time.thread_time() - start)

    whole = look(lambda: MPI.Request.Testall(requests))
    some = look(waiting.arrived)
    rows += [
        ("a look at all that is on its way", whole, 1.0),
        ("a look as the helper thread takes it", some, whole / some),
    ]
    comm.exchange(outgoing, [], "late").finish()
    waiting.finish()
    comm.close()
    print(
        f"{options.peers:,} messages of {options.bytes} bytes each way, to the rank itself; processor ms of one thread"
    )
    print(tabulate(rows, ("", "ms", "times faster"), floatfmt=(None, ".4f", ".1f")))
    print(MPI.Get_library_version().split("\n")[0].strip("\0 \t"))
    return 0
