"""The handover of a layer's output, with a loan of memory that the layer above returns.

Between two layers stand an activation and dropout, and one matrix: the output of the layer below. Whoever comes above
needs that output once. So the model hands the output over with its memory. The layer above applies the activation
itself, some rows at a time, in the place of the rows or on the way into its product. In the backward pass it writes the
gradient over the rows. A layer below that needs more than that gradient (attention_layer.py) lends the memory. It
gets the memory back with the requested numbers.

Nobody else may use rows that were handed over. Taking them twice is refused. Whoever saved them before for a gradient
gets autograd's error about tensors modified in place, and a loan that does not come back as it was given is refused.
"""

from dataclasses import dataclass

import torch

from hpcgnn.memory.arena import SavedTensor
from hpcgnn.ops.draws import EluDropout, ReluDropout


class BorrowedBuffer:
    """Memory that a layer of attention lends with its output y (m, F), and what comes back in it.

    y: y as a plain tensor; its gradient comes back over it, times the shares where `scaled`. dots: (m, H), has the
    shares where `scaled`; D = <gy, y> per head comes back there. Both are kept (memory/arena.py). bias: (F,),
    the bias that is in y; its gradient comes back in `sums`.
    """

    def __init__(self, y: SavedTensor, dots: SavedTensor, bias: torch.Tensor, scaled: bool) -> None:
        self.y, self.dots, self.bias, self.scaled = y, dots, bias, scaled
        self.sums: torch.Tensor | None = None
        self.taken, self.returned = False, False

    def give_back(self, sums: torch.Tensor) -> None:
        """The layer above has written the gradient over y, and D to dots. sums: (F,), the gradient of the bias."""
        self.sums, self.returned = sums, True

    def check_return(self, gradient: torch.Tensor) -> None:
        """Raise RuntimeError unless `gradient`, autograd's for y, is exactly the one that the layer above wrote."""
        y = self.y.tensor()
        same = gradient.data_ptr() == y.data_ptr() and gradient.stride() == y.stride()
        if not self.returned or not same:
            raise RuntimeError(
                "the output of an attention layer was handed over to the next layer, and something else has used it "
                "or changed its gradient; expected the gradient in the memory that was lent. Use the rows of such a "
                "layer only once, or call the layer without hand_over"
            )


@dataclass
class Handover:
    """Rows given away. rows: (n_p, F). loan: BorrowedBuffer or None. activation: applied to the rows by their taker,
    or None.
    """

    rows: torch.Tensor
    loan: BorrowedBuffer | None = None
    activation: ReluDropout | EluDropout | None = None
    _left = False

    def take(self, returns_loan: bool = False) -> tuple[torch.Tensor, BorrowedBuffer | None]:
        """(rows, loan) for the one who takes them over, and may write to the rows.

        Raises RuntimeError the second time, and for a loan that the taker does not return. Only a layer of attention
        with an activation returns it.
        """
        if self._left:
            raise RuntimeError("rows that were handed over can be taken once; use what the taker made of them")
        self._left = True
        if self.loan is not None:
            if not returns_loan or self.activation is None:
                raise RuntimeError(
                    "these rows come with a loan; expected a layer of attention with an activation to take them"
                )
            self.loan.taken = True
        torch.autograd.graph.increment_version(self.rows)
        return self.rows, self.loan
