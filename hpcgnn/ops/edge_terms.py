"""The edges' terms in their logits of attention, for some edges at a time."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Carried:
    """Data of some edges, weight (E,) or type int32 (E,). With the coefficients it makes their terms."""

    coefficients: torch.Tensor
    weight: torch.Tensor | None
    type: torch.Tensor | None

    def term(self) -> torch.Tensor:
        """(E, H)."""
        if self.weight is None:
            return self.coefficients[self._types]
        return self.weight.unsqueeze(1) * self.coefficients

    def add_gradient(self, total: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the gradient of the terms (E, H) to the gradient of the coefficients."""
        if self.weight is None:
            total.index_add_(0, self._types, gradient)
        else:
            total += self.weight @ gradient

    @property
    def _types(self) -> torch.Tensor:
        return self.type.long()  # type: ignore[union-attr] # where there is no weight there is a type
