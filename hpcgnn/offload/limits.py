"""What a rank may take of its node's memory: what `--memory` says, else what the machine and the job leave."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcgnn.comm import Communicator
from hpcgnn.comm.launch.launcher import node_of_job
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.memory.available import group_limits, machine_available
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.options.memory_size import AUTO, said_memory
from hpcgnn.plan.rules import Selection

# Of what is left: for what other processes of the node, and the kernel for this one, take meanwhile.
_SPARE = 1 / 16


@dataclass(frozen=True)
class Limit:
    """total: bytes of the ranks of this node together; node: a number that they have in common, and no others; ranks:
    how many they are; said: --memory, or '' where it is what there is.
    """

    total: int
    node: int
    ranks: int
    said: str

    def __str__(self) -> str:
        return f"--memory {self.said}" if self.said else f"what is left of this node, {self.total / 2**30:.2f} GiB,"

    def of_node(self, comm: Communicator, value: int) -> list[int]:
        """What each rank of this node has told. Collective over all ranks."""
        return [each for node, each in comm.allgather_object((self.node, value)) if node == self.node]


@dataclass(frozen=True)
class Portion:
    """What a rank may take of the limit of its node, in bytes. most_least: what the ranks of the node that needs most
    cannot do without; fits: whether all ranks of all nodes have that; refused: whether those of this node do not, and
    this is the largest of them.
    """

    nbytes: int
    most_least: int
    fits: bool
    refused: bool


def portion(limit: Limit, comm: Communicator, least: int, wanted: int = 0) -> Portion:
    """The Portion of this rank, which cannot do without `least` bytes and has a use for `wanted` more. Collective.

    A map may give one rank many more nodes than another, so the ranks of a node do not share alike (see `divided`).
    """
    said = comm.allgather_object((limit.node, limit.total, least, wanted))
    nodes: dict[int, list[int]] = {}
    for rank, (node, *_) in enumerate(said):
        nodes.setdefault(node, []).append(rank)
    needs, fits = {}, True
    for node, ranks in nodes.items():
        needs[node] = sum(said[rank][2] for rank in ranks)
        fits = fits and needs[node] <= min(said[rank][1] for rank in ranks)
    near = nodes[limit.node]
    total = min(said[rank][1] for rank in near)
    shares = divided(total, [said[rank][2] for rank in near], [said[rank][3] for rank in near])
    largest = max(near, key=lambda rank: said[rank][2])
    refused = needs[limit.node] > total and comm.rank == largest
    return Portion(shares[near.index(comm.rank)], max(needs.values()), fits, refused)


def divided(total: int, least: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """`total` bytes for some ranks: each has its least, and of the rest a part in proportion to what it wants. What
    nobody wants is shared alike. Where there is not enough for what they cannot do without, each has a part in
    proportion to that.
    """
    needs, wants = sum(least), sum(wanted)
    if needs > total:
        return [total * each // needs for each in least]
    given = min(total - needs, wants)
    over = (total - needs - given) // len(least)
    return [each + (given * more // wants if wants else 0) + over for each, more in zip(least, wanted)]


def memory_limit(config: Config, session: Session) -> Limit | None:
    """The Limit of a run, None for none; to be asked before a graph is read."""
    text, schedule = config.run.memory, config.schedule
    said = said_memory(text)
    if said is None and (
        text != AUTO or not Selection(config).schedule.within_memory or schedule.intra_node == "shared"
    ):
        return None
    ranks = session.ranks_on_node
    total = int((1 - _SPARE) * node_memory(ranks, session.comm.size)) if said is None else said
    return Limit(total, session.node, ranks, "" if said is None else text)


def node_memory(ranks_on_node: int, ranks: int) -> int:
    """Bytes that the ranks of this node may take together: the least of the limits of their control group and of those
    above it, of what the batch system gives the job on a node, and of what the machine has left.
    """
    given, _ = node_of_job(ranks)
    left = machine_available() + ranks_on_node * resident_bytes()  # theirs is taken of it already
    return min([left, *group_limits(), *([] if given is None else [given])])
