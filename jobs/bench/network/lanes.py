"""What a pass of a stream costs a rank among many: processor time and calls of Python, with messages that take no time.

    python jobs/bench/network/lanes.py [--ranks 256,1024,4096] [--per-node 1,8,16] [--rows 10] [--width 256]

A rank exchanges `--rows` rows with each of the others, in lanes as of nodes of `--per-node` ranks. The messages are
left out, so packing, unpacking and adding remain. A line has the milliseconds of one thread (median of the passes), the
calls of Python, and the milliseconds of the first pass, which makes the turns.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from hpcgnn.comm.communicator import Exchange, SoloCommunicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.peers import Peers
from hpcgnn.exchange.plan import agreed_plan
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.exchange.send_matrix import SendMatrix
from hpcgnn.exchange.stream import Returns, Stream, StreamInput
from hpcgnn.graph.blocks import Block

#: {name: (--halo-dtype, whether something returns, columns of what returns that are narrowed)}
CASES = {
    "fp32": ("fp32", False, 0),
    "fp32 + returns": ("fp32", True, 0),
    "bf16": ("bf16", False, 0),
    "int8": ("int8", False, 0),
    "bf16 + returns": ("bf16", True, 1),
    "int8 + returns": ("int8", True, 1),
}
PASSES, OWN_ROWS = 15, 20_000


class Silent(SoloCommunicator):
    """One rank of many, whose messages are nothing."""

    def exchange(self, outgoing: list, incoming: list, kind: str) -> Exchange:
        return Exchange()


def a_pass(ranks: int, per_node: int, rows: int, width: int, name: str) -> Callable[[], None]:
    """A function that runs a stream once."""
    dtype, returns, narrow = CASES[name]
    peers = Peers(np.arange(ranks, dtype=np.int32), np.arange(0, ranks + 1, per_node), 0, 0)
    counts = np.full(peers.size - 1, rows * per_node)
    generator = torch.Generator().manual_seed(1)
    sent = torch.randint(OWN_ROWS, (len(counts), rows * per_node), dtype=torch.int32, generator=generator)
    comm = Silent()
    plan = agreed_plan(peers, counts, counts, SendMatrix(sent.sort(1).values.reshape(-1)), 1 << 30, comm)
    own, nothing = torch.zeros(OWN_ROWS + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    halo = Block(torch.zeros(2, dtype=torch.int64), nothing, torch.zeros(1, dtype=torch.int32), first_column=0)
    codec = RowCodec(dtype, torch.arange(OWN_ROWS))
    stream = Stream(Block(own, nothing), [halo], plan, HaloBuffers(1 << 34), comm, codec)
    x = torch.randn(OWN_ROWS, width, generator=generator)
    returned = Returns(torch.zeros(OWN_ROWS, width), narrow * width) if returns else None

    def run() -> None:
        for _ in stream(StreamInput(x), "halo_forward", returned):
            pass

    return run


def calls_of(run: Callable[[], None]) -> int:
    """Calls of Python functions."""
    calls = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def steady_calls(ranks: int, per_node: int, name: str) -> int:
    """Calls of a pass after the first, among so many ranks."""
    run = a_pass(ranks, per_node, 2, 8, name)
    run()
    return calls_of(run)


def milliseconds(run: Callable[[], None]) -> float:
    """Processor time of this thread."""
    begun = time.thread_time()
    run()
    return 1000 * (time.thread_time() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="256,1024,4096")
    parser.add_argument("--per-node", default="1,8,16")
    parser.add_argument("--rows", type=int, default=10, help="rows of a message (default: 10)")
    parser.add_argument("--width", type=int, default=256, help="columns of a row (default: 256)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    a_pass(2, 1, 1, 1, "int8 + returns")()  # loads the kernels
    print(f"{'ranks':>6} {'a node':>6}  {'rows':<15} {'ms':>8} {'calls':>8} {'first, ms':>10}")
    for ranks in map(int, given.ranks.split(",")):
        for per_node in map(int, given.per_node.split(",")):
            for name in CASES:
                run = a_pass(ranks, per_node, given.rows, given.width, name)
                gc.collect()  # of what was loaded
                first = milliseconds(run)
                median = statistics.median(milliseconds(run) for _ in range(PASSES))
                print(
                    f"{ranks:>6} {per_node:>6}  {name:<15} {median:>8.2f} {calls_of(run):>8} {first:>10.1f}", flush=True
                )


if __name__ == "__main__":
    main()
