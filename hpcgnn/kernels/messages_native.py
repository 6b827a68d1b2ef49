"""The compiled kernels of messages (native/messages.c)."""

from typing import Any

import torch
from torch import Tensor

from .interface import ELEMENT_CODES, filled


class NativeMessages:
    """Kernels of `messages.py`, compiled."""

    _library: Any

    def _how(self, *dtype: torch.dtype) -> tuple[int, ...]:
        raise NotImplementedError

    def messages(self, function: str, tensors: dict[str, Tensor | None], **more: int) -> None:
        """function: hg_message_forward or hg_message_backward."""
        y = tensors["y"]
        assert y is not None, "both directions have it"
        arguments = filled("hg_message_args", tensors, type=ELEMENT_CODES[y.dtype], **more)
        if getattr(self._library, function)(*self._how(), arguments):
            raise MemoryError("messages: no memory for the partial results of a block")
