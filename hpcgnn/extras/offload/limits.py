"""The memory limit of a rank on its node: from `--memory`, else from the machine and the job."""

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.launcher import node_of_job
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError, RemoteError
from hpcgnn.extras.offload.options import AUTO, options_of, said_memory
from hpcgnn.extras.offload.scratch import ScratchError
from hpcgnn.memory.resident import group_limits, machine_available, resident_bytes
from hpcgnn.plan.run_plan import RunPlan

log = logging.getLogger("hpcgnn")
# The share of the free memory to leave for other processes of the node, and for the kernel's own use.
_SPARE = 1 / 16


@dataclass(frozen=True)
class Limit:
    """The memory limit of a node.

    Attributes:
        total: bytes of all ranks of the node together.
        node: a number that identifies the node.
        ranks: number of its ranks.
        said: the value of --memory, or '' if the limit comes from the machine.
    """

    total: int
    node: int
    ranks: int
    said: str

    def __str__(self) -> str:
        return f"--memory {self.said}" if self.said else f"what is left of this node, {self.total >> 20}M,"

    def of_node(self, comm: Communicator, value: int) -> list[int]:
        """Return the value of each rank of this node. Collective over all ranks."""
        return [each for node, each in comm.allgather_object((self.node, value)) if node == self.node]

    def too_little(
        self, comm: Communicator, given: "Portion", lasting: int, at_work: int, pruned: int = 0
    ) -> ConfigError:
        """The refusal of a limit, by the largest rank of a node.

        Args:
            comm: the communicator.
            given: this rank's portion.
            lasting: bytes in use all the time.
            at_work: bytes for a layer at work.
            pruned: bytes of `lasting` for the parts of pruned layers.
        """
        least = given.most_least + (10 << 20)  # libraries take a little more or less in each start
        unit, name = (1 << 20, "M") if least < 16 << 30 else (1 << 30, "G")
        held, work, needed = (f"{math.ceil(nbytes / unit)}{name}" for nbytes in (lasting, at_work, least))
        size = f"{math.ceil(pruned / unit)}{name}"
        seen = f" ({size} of it for what pruned layers see: --prune none goes without)" if pruned else ""
        ranks = f"its {self.ranks} ranks" if self.ranks > 1 else "its rank"
        return ConfigError(
            f"{self} is too little: rank {comm.rank} holds {held}{seen}, and a layer at work {work} more; expected "
            f"at least --memory {needed} for a node with {ranks}, or more nodes"
        )


@dataclass(frozen=True)
class Portion:
    """A rank's portion of its node's limit, in bytes.

    Attributes:
        most_least: the required minimum of the node with the largest need.
        fits: whether every node has its minimum.
        refused: whether this node lacks it, and this rank is its largest.
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
    """Divide `total` bytes among ranks.

    Each rank gets its minimum, and a part of the rest in proportion to its wish. Ranks share leftover bytes equally. If
    the minima do not fit, each rank gets a part in proportion to its minimum.

    Args:
        total: bytes to divide.
        least: minimum of each rank.
        wanted: wish of each rank.
    """
    needs, wants = sum(least), sum(wanted)
    if needs > total:
        return [total * each // needs for each in least]
    given = min(total - needs, wants)
    over = (total - needs - given) // len(least)
    return [each + (given * more // wants if wants else 0) + over for each, more in zip(least, wanted, strict=True)]


def memory_limit(config: Config, session: Session) -> Limit | None:
    """The Limit of a run, None for none; to be asked before a graph is read."""
    text = options_of(config).memory
    said = said_memory(text)
    if said is None and (text != AUTO or not RunPlan(config).schedule.within_memory):
        return None
    ranks = session.ranks_on_node
    total = int((1 - _SPARE) * node_memory(ranks, session.comm.size)) if said is None else said
    return Limit(total, session.node, ranks, "" if said is None else text)


def node_memory(ranks_on_node: int, ranks: int) -> int:
    """Return the bytes that the ranks of this node may take together.

    This is the smallest of three limits: of the control group and its parents, of the job on a node, and of free
    memory.
    """
    given, _ = node_of_job(ranks)
    left = machine_available() + ranks_on_node * resident_bytes()  # theirs is taken of it already
    return min([left, *group_limits(), *([] if given is None else [given])])


@contextlib.contextmanager
def without_limit_if_it_must(limit: Limit, comm: Communicator) -> Iterator[None]:
    """Run a body that checks a limit on all ranks. If it fails, raise with --memory, and only warn without."""
    try:
        yield
    except (ConfigError, ScratchError, RemoteError) as error:
        found = error.of if isinstance(error, RemoteError) else type(error)
        if limit.said or not issubclass(found, ConfigError | ScratchError):
            raise
        if comm.rank == 0:
            log.warning("memory may not be enough: %s; it goes on without a limit (--memory none: no warning)", error)
