"""Training within a memory limit (`--memory`): saved activations go to a scratch file if the limit requires it.

The size of a step is known before the first one: a step on a small graph gives the bytes per node. So the free disk
space is checked before the first epoch. The first epoch already writes tensors before memory runs out.
"""

import contextlib
import logging
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from hpcgnn import cores
from hpcgnn.comm import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.engine.trainer import Trainer
from hpcgnn.engine.views import layers_to_prune
from hpcgnn.errors import ConfigError, RemoteError, ScratchError
from hpcgnn.memory.keeping import Keeper, Kept
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.memory.scratch import Scratch
from hpcgnn.memory.shelf import OnDisk, Shelf
from hpcgnn.nn.model import traits_of
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.offload.folders import check_folder, check_space
from hpcgnn.offload.limits import Limit, Portion, portion
from hpcgnn.offload.toy import NODES, toy_step
from hpcgnn.plan.run_plan import RunPlan

log = logging.getLogger("hpcgnn")
#: Kinds of the ledger: bytes written to and read from the scratch file.
WRITTEN, READ = "scratch_written", "scratch_read"
# Bytes of a rank outside of the arena, without the optimizer's state and the best parameters so far.
_BESIDE = 24 << 20
# Number of the largest saved tensors that are in memory at a time in any case: the input, the output, and one in
# transfer.
AT_WORK = 3


class Within(Plugin):
    """Keeps a Trainer within a number of bytes.

    Attributes:
        folder: folder of the scratch file; features on disk may have made it already.
        kept: bytes that a step saves for its backward pass.
    """

    def __init__(self, trainer: Trainer, budget: int, folder: str, kept: int) -> None:
        self._trainer, self.folder, self.kept = trainer, folder, kept
        arena, features = trainer.buffers.arena, trainer.local.features
        self._scratch = (
            features.shelf.scratch if isinstance(features, OnDisk) else Scratch(folder, ScratchError, cores.use_all)
        )
        arena.keep_within(budget, self._scratch)
        assert arena.keeper is not None, "made a line above"
        self.keeper = arena.keeper
        self.keeper.most = kept
        self._told = 0, 0

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Run the forward pass of a step as the body, with the saved tensors of torch's own operations in the arena."""
        self.keeper.begin()
        arena, lasting = self._trainer.buffers.arena, self._lasting()

        def pack(tensor: torch.Tensor) -> Kept:
            own = tensor.untyped_storage().data_ptr() in lasting or (tensor.is_leaf and tensor.requires_grad)
            return Kept(tensor) if own else arena.keep(tensor.detach())

        with torch.autograd.graph.saved_tensors_hooks(pack, Kept.tensor):
            yield

    def _lasting(self) -> set[int]:
        """Where tensors lie that are there from step to step."""
        trainer = self._trainer
        tensors = [*trainer.model.parameters(), *trainer.constants.values(), trainer.local.features]
        tensors += [each for each in (trainer.local.labels, trainer.local.original_id) if each is not None]
        return {each.untyped_storage().data_ptr() for each in tensors if isinstance(each, torch.Tensor)}

    def end_epoch(self) -> None:
        """Book the bytes written and read since the last call."""
        now = self._scratch.written, self._scratch.read
        for kind, count, before in zip((WRITTEN, READ), now, self._told, strict=True):
            if count > before:
                self._trainer.comm.ledger.add(kind, messages=1, bytes_sent=count - before)
        self._told = now

    def record(self) -> dict[str, Any]:
        """Of this rank, for its record."""
        scratch = {
            "folder": self.folder,
            "budget_bytes": self.keeper.budget,
            "file_bytes": self._scratch.nbytes,
            "written_bytes": self._scratch.written,
            "read_bytes": self._scratch.read,
            "waiting_seconds": self.keeper.waited,
            "past_the_page_cache": self._scratch.direct,
        }
        return {"scratch": scratch}


def hold_within(trainer: Trainer, toy: "Toy", config: Config, session: Session, limit: Limit | None) -> None:
    """Let a Trainer stay within its Limit, if there is one. Collective. Raises ConfigError or ScratchError where that
    cannot be, unless nobody has asked for it: then it is as without a limit.
    """
    if limit is None:
        return
    with without_limit_if_it_must(limit, session):
        _hold_within(trainer, toy, config, session, limit)


def _hold_within(trainer: Trainer, toy: "Toy", config: Config, session: Session, limit: Limit) -> None:
    comm, features, kept = trainer.comm, trainer.local.features, toy.per_node * trainer.local.num_owned
    lasting, at_work = _needs(trainer, toy, config, limit)
    lasting += trainer.schedule.halo.kept_bytes  # their pages are not resident yet
    given = portion(limit, comm, lasting + at_work, kept)
    budget = given.nbytes - lasting
    over = max(0, kept + at_work - budget)
    over_node, over_all = sum(limit.of_node(comm, over)), int(comm.total(torch.tensor([over]), "plan"))
    if not (limit.said or over_all or isinstance(features, OnDisk)):
        return
    if trainer.views.in_place is not None:
        log.warning(
            "memory may not be enough: a node has %.2f GiB for its ranks, and this one lacks %.2f GiB; with "
            "--intra-node shared nothing goes to scratch files, with --intra-node messages it can",
            limit.total / 2**30,
            over_node / 2**30,
        )
        return
    folder = config.run.scratch or tempfile.gettempdir()
    pruned = sum(
        share.inward.structure_nbytes + share.outward.structure_nbytes
        for share in trainer.views.shares
        if share and share.inward is not trainer.local.inward
    )
    with refusing(limit, comm, given, lasting, at_work, pruned) as refuse:
        if given.refused:
            refuse()
        if not isinstance(features, OnDisk):  # else it has been looked at
            check_folder(folder, limit)
        check_space(folder, over_node, limit.ranks)
    with comm.together("making a scratch file"):
        trainer.plugins.add(Within(trainer, budget, folder, kept + at_work))
    log.info(
        "memory: %.2f GiB for the ranks of a node%s; a step keeps up to %.2f GiB on this rank, and %.2f GiB of all "
        "ranks' go to scratch files in %s",
        limit.total / 2**30,
        "" if limit.said else ", which is what they have (--memory auto)",
        kept / 2**30,
        over_all / 2**30,
        folder,
    )


@contextlib.contextmanager
def without_limit_if_it_must(limit: Limit, session: Session) -> Iterator[None]:
    """Run a body that checks a limit on all ranks. If it fails, raise with --memory, and only warn without."""
    try:
        yield
    except (ConfigError, ScratchError, RemoteError) as error:
        found = error.of if isinstance(error, RemoteError) else type(error)
        if limit.said or not issubclass(found, ConfigError | ScratchError):
            raise
        if session.comm.rank == 0:
            log.warning("memory may not be enough: %s; it goes on without a limit (--memory none: no warning)", error)


@contextlib.contextmanager
def refusing(
    limit: Limit, comm: Communicator, given: Portion, lasting: int, at_work: int, pruned: int
) -> Iterator[Callable[[], NoReturn]]:
    """Yield the function with which the largest rank of a node refuses a limit that is too small. Collective.

    Args:
        limit: the node's limit.
        comm: the communicator.
        given: this rank's portion, too small for `lasting` and `at_work`.
        lasting: bytes in use all the time.
        at_work: bytes for a layer at work.
        pruned: bytes of `lasting` for the parts of pruned layers.
    """
    seen = f" ({pruned / 2**30:.2f} GiB of it for what pruned layers see: --prune none goes without)" if pruned else ""
    others = f", the largest of {limit.ranks} on its node" if limit.ranks > 1 else ""

    def refuse() -> NoReturn:
        raise ConfigError(
            f"{limit} is too little for rank {comm.rank}{others}, whose graph, libraries and "
            f"parameters take {lasting / 2**30:.2f} GiB{seen}, and a layer at work {at_work / 2**30:.2f} GiB; "
            f"expected at least {given.most_least / 2**30 + 0.01:.2f}G for the {limit.ranks} ranks of a node, or more "
            "ranks on more nodes"
        )

    with comm.together("looking for room for what training keeps"):
        yield refuse


def check_room(trainer: Trainer, toy: "Toy", config: Config, session: Session, limit: Limit | None) -> None:
    """Raise ConfigError, on all ranks, if --memory is too small for a Trainer that only evaluates. Collective."""
    if limit is None or not limit.said:
        return
    lasting, at_work = _needs(trainer, toy, config, limit)
    given = portion(limit, trainer.comm, lasting + at_work)
    with refusing(limit, trainer.comm, given, lasting, at_work, 0) as refuse:
        if given.refused:
            refuse()


def _needs(trainer: Trainer, toy: "Toy", config: Config, limit: Limit) -> tuple[int, int]:
    """Return (lasting bytes, additional bytes of a layer at work). Collective.

    The kept aggregate of features on disk goes to disk as well if it does not fit.
    """
    features, largest = trainer.local.features, AT_WORK * toy.largest * trainer.local.num_owned
    lasting = resident_bytes() + toy.beside + int(config.schedule.halo_buffer * 2**20)
    at_work = largest + constants_in_arena(trainer)
    on_disk = isinstance(features, OnDisk) and not features.shelf.results
    if isinstance(features, OnDisk) and on_disk and not portion(limit, trainer.comm, lasting + at_work).fits:
        features.shelf.results = True  # loading has left less than was foreseen, and the aggregate is not made yet
        at_work = largest + constants_in_arena(trainer)
    return lasting, at_work


def constants_in_arena(trainer: Trainer) -> int:
    """Return the arena bytes for the kept aggregate of the features, or for reading it from disk."""
    spec, features = trainer.model.spec, trainer.local.features
    if not isinstance(features, torch.Tensor | OnDisk):
        return 0
    (count, width), shelf = features.shape, features.shelf if isinstance(features, OnDisk) else None
    return bytes_of_constants((count, width), spec, features.dtype, shelf)


def bytes_of_constants(shape: tuple[int, int], spec: ModelSpec, dtype: torch.dtype, shelf: Shelf | None) -> int:
    """The same, of features of this shape and type. shelf: where they are, None for in memory."""
    kept = spec.aggregate
    held = math.prod(shape) * kept.itemsize
    if shelf is None:
        return held if spec.keeps_input else 0
    if not spec.constant_input:
        return shelf.at_work(*shape, dtype)
    return shelf.at_work(*shape, dtype) + (shelf.at_work(*shape, kept) if shelf.results else held)


class _Counter(Keeper):
    """Counts saved tensors, and leaves them unchanged."""

    def __init__(self) -> None:
        super().__init__(0, None, lambda size: True, None)  # type: ignore[arg-type] # it writes nothing
        self.sizes: dict[int, int] = {}
        self._alive: list[Kept] = []

    def keep(self, tensor: torch.Tensor, held: object) -> Kept:
        kept = Kept(tensor)
        storage = tensor.untyped_storage()
        self.sizes[storage.data_ptr()] = storage.nbytes()
        self._alive.append(kept)  # so that no other tensor lies where it did
        return kept

    def let_go(self) -> None:
        """Keep nothing any more. Tensors that know of their gradient hold it, and it them, by ways that Python's
        collector of garbage does not see.
        """
        self._alive.clear()

    def make_room(self) -> bool:
        return False

    def note(self, taken: int) -> None:
        pass


@dataclass(frozen=True)
class Toy:
    """The result of a step on a small graph.

    Attributes:
        per_node: bytes that a step saves per node.
        largest: bytes per node of the largest saved tensor.
        beside: bytes of a rank that depend on no node, without parameters and gradients.
        parameters: bytes of the parameters, and as many again for their gradients.
        in_tiles: whether the first layer reads its constant input and aggregate some rows at a time.
        input_in_tiles: the same for the input alone.
        reads_input: whether the first layer reads its input in addition to the aggregate.
        row_bytes: see `toy_step`.
        pruning: see `layers_to_prune`.
    """

    per_node: int
    largest: int
    beside: int
    parameters: int
    in_tiles: bool
    input_in_tiles: bool
    reads_input: bool
    row_bytes: int
    pruning: tuple[list[float], int]


def toy_of(plan: RunPlan) -> Toy:
    """By a step of every stage."""
    counters: list[_Counter] = []
    models: list[Any] = []

    def count(toy: Trainer) -> None:
        counters.append(_Counter())
        models.append(toy.model)
        toy.buffers.arena.keeper = counters[-1]
        toy.plugins.add(_Counted(toy, counters[-1]))

    row_bytes = toy_step(plan, count)
    for counter in counters:
        counter.let_go()
    # Of stages that follow each other, the one that keeps most.
    sizes = max(([size for size in each.sizes.values() if size >= NODES] for each in counters), key=sum, default=[])
    model = models[0]
    parameters = sum(p.nbytes for p in model.parameters())
    return Toy(
        per_node=-(-sum(sizes) // NODES),
        largest=-(-max(sizes, default=0) // NODES) * (1 if plan.spec.keep == "exact" else plan.spec.dtype.itemsize),
        beside=_BESIDE + 3 * parameters,
        parameters=parameters,
        in_tiles=traits_of(model.convs[0]).constants_in_tiles,
        input_in_tiles=model.input_in_tiles,
        reads_input=traits_of(model.convs[0]).reads_self,
        row_bytes=row_bytes,
        pruning=layers_to_prune(model),
    )


class _Counted(Within):
    """The forward pass of a toy whose tensors are counted."""

    def __init__(self, trainer: Trainer, keeper: _Counter) -> None:
        self._trainer, self.keeper = trainer, keeper

    def end_epoch(self) -> None:
        pass
