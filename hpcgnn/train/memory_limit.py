"""What a rank may take of its node's memory: what `--memory` says, else what the machine and the job leave."""

from dataclasses import dataclass

from hpcgnn.comm.launcher import node_of_job
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.memory.available import group_limits, machine_available
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.options.memory_size import AUTO, said_memory

# Others that stay within memory keep nothing of other ranks from step to step.
SCHEDULES = "sar", "lazy"
# Of what is left: for what other processes of the node, and the kernel for this one, take meanwhile.
_SPARE = 1 / 16


@dataclass(frozen=True)
class Limit:
    """share: bytes of this rank; ranks: of its node; said: --memory, or '' where it is what there is."""

    share: int
    ranks: int
    said: str

    def __str__(self) -> str:
        return (
            f"--memory {self.said}"
            if self.said
            else f"what is left of this node, {self.share * self.ranks / 2**30:.2f} GiB,"
        )


def memory_limit(config: Config, session: Session) -> Limit | None:
    """The Limit of a run, None for none; to be asked before a graph is read."""
    text, schedule = config.run.memory, config.schedule
    said = said_memory(text)
    if said is None and (text != AUTO or schedule.schedule not in SCHEDULES or schedule.intra_node == "shared"):
        return None
    ranks = session.ranks_on_node
    if said is not None:
        return Limit(said // ranks, ranks, text)
    return Limit(int((1 - _SPARE) * node_memory(ranks, session.comm.size)) // ranks, ranks, "")


def node_memory(ranks_on_node: int, ranks: int) -> int:
    """Bytes that the ranks of this node may take together: the least of the limits of their control group and of those
    above it, of what the batch system gives the job on a node, and of what the machine has left.
    """
    given, _ = node_of_job(ranks)
    left = machine_available() + ranks_on_node * resident_bytes()  # theirs is taken of it already
    return min([left, *group_limits(), *([] if given is None else [given])])
