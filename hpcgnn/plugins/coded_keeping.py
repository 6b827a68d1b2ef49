"""`--keep int8`: tensors that a model keeps between the passes, as codes that are rounded at random.

The forward pass computes with exact numbers. Tensors that it keeps for the gradient are coded (`Coded`). Fused layers
name the columns that may be rounded (`Arena.keep`), and torch's own operations are caught by their saved tensors. Only
tensors of the model are coded. Those of the loss are not: its gradient is not linear in the logits.

The draws of a row are keyed by its original id, the epoch, and the number of the kept tensor in the step, so they are
the same on any number of ranks.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hpcgnn import kernels
from hpcgnn.engine.memory_policy import SavedTensors, lasting_storages
from hpcgnn.memory.arena import Arena, SavedTensor
from hpcgnn.nn.model import traits_of
from hpcgnn.ops.draws import Purpose

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

# Narrower matrices are kept as they are: their steps would take as much as the codes.
LEAST_COLUMNS = 8


class Coded:
    """The memory of a matrix, as the SavedTensor of all its views have it.

    The codes may wait in the scratch file. `memory()` makes the matrix anew, at another place, and lets the codes go. A
    layer writes the gradient over it, so it takes no memory that the gradient would not.
    """

    def __init__(self, x: torch.Tensor, ids: torch.Tensor, key: int, exact: int, arena: Arena) -> None:
        """Code x (n, F), contiguous, but for its last `exact` columns. ids: int64 (n,); with key they determine the
        draws.
        """
        rows, width = len(x), x.shape[1] - exact
        codes = arena.empty(rows, width, dtype=torch.int8)
        steps = arena.empty(rows, -(-width // kernels.BLOCK))
        kernels.encode(codes, steps, x[:, :width], ids, key)
        parts = [codes, steps] if exact == 0 else [codes, steps, torch.empty(0)]
        if exact:
            parts[2] = arena.empty(rows, exact, dtype=x.dtype).copy_(x[:, width:])
        self._arena, self._like = arena, (x.shape, x.dtype)
        self._parts = [arena.keep(part) for part in parts]
        self._storage: torch.UntypedStorage | None = None

    def memory(self) -> torch.UntypedStorage:
        if self._storage is None:
            shape, dtype = self._like
            codes, steps, *rest = (part.tensor() for part in self._parts)
            out = self._arena.empty(*shape, dtype=dtype)
            kernels.decode(out[:, : codes.shape[1]], codes, steps)
            for exact in rest:
                out[:, codes.shape[1] :] = exact
            self._storage = out.untyped_storage()
            self._parts.clear()
        return self._storage


class CodedKeeping(SavedTensors):
    """Codes the tensors that the model of a Trainer keeps in a training step."""

    def __init__(self, trainer: "Trainer") -> None:
        super().__init__(trainer)
        self._active = self._in_model = False
        self._number = 0
        # {a storage: (itself, its codes)}: several may keep one. Nobody writes to it then, until it is asked for.
        self._found: dict[int, tuple[StorageWeakRef, Coded]] = {}
        last = trainer.model.convs[-1]
        if traits_of(last).activation is not None and not hasattr(last, "hands_over"):
            # The backward pass begins with what the last of the fused layers keeps: nothing else is there by then.
            last.register_forward_pre_hook(lambda *_: self._leave())
        trainer.model.register_forward_pre_hook(lambda *_: self._begin())
        trainer.model.register_forward_hook(lambda *_: self._end(), always_call=True)

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Code in the forward pass of the body."""
        self._active, self._number = True, 0
        try:
            with super().forward():
                yield
        finally:
            self._active = False
            self._found.clear()

    def _begin(self) -> None:
        if self._active:
            self._ids, self._lasting = self._ids_by_count(), lasting_storages(self._trainer)
            self._trainer.buffers.arena.coder, self._in_model = self._coded, True

    def _leave(self) -> None:
        self._trainer.buffers.arena.coder = None

    def _end(self) -> None:
        self._leave()
        self._in_model = False

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        return (self._coded(tensor, 0) if self._in_model else None) or super().keep(tensor)

    def _ids_by_count(self) -> dict[int, torch.Tensor]:
        """{number of rows: original ids of these rows}. Rows of pruned layers are subsets of each other, so the same
        number means the same rows.
        """
        views = self._trainer.views
        graphs = [views.trained_on, *(share for share in (views.nodes, *views.shares) if share is not None)]
        return {len(ids): ids for graph in graphs for ids in (graph.original_id, graph.output_id)}

    def _coded(self, tensor: torch.Tensor, exact: int) -> SavedTensor | None:
        """The tensor as codes, or None if it is not a matrix with a row for each node, nor a part of a coded one."""
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place not in self._found:
            if storage.data_ptr() in self._lasting or not self._fits(tensor, exact):
                return None
            key = self._trainer.random.key(Purpose.KEPT, self._number)
            self._number += 1
            coded = Coded(tensor, self._ids[len(tensor)], key, exact, self._trainer.buffers.arena)
            self._found[place] = StorageWeakRef(storage), coded
        return SavedTensor(tensor, self._found[place][1].memory)

    def _fits(self, tensor: torch.Tensor, exact: int) -> bool:
        """Whether a tensor is a matrix of numbers with a row for each node, alone in its memory."""
        if tensor.dim() != 2 or tensor.dtype not in (torch.float32, torch.float64) or not tensor.is_contiguous():
            return False
        alone = tensor.storage_offset() == 0 and tensor.nbytes == tensor.untyped_storage().nbytes()
        return alone and tensor.shape[1] - exact >= LEAST_COLUMNS and len(tensor) in self._ids


def make(trainer: "Trainer", learns: bool) -> CodedKeeping | None:
    """The plugin of a trainer whose configuration asks for it."""
    return CodedKeeping(trainer) if learns and trainer.plan.config.model.keep == "int8" else None
