"""Messages between ranks as one all-to-all of all ranks, for libraries without point-to-point sends.

All ranks must begin the same exchanges in the same order. Each exchange carries its kind and its sizes, so ranks that
are out of step raise an error, and never mistake a message. All data is copied once more, since an all-to-all takes it
in one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpcgnn.comm.communicator import Message
from hpcgnn.comm.transport import bytes_of

# A header: the tag, shifted by this number of bits, and the bytes below it.
_TAG_SHIFT = 48


@dataclass(frozen=True)
class Packed:
    """An exchange of this rank, as one buffer in each direction.

    Attributes:
        header: int64 (P,), a number for each rank; as many come back.
        given: uint8, the parts for all ranks.
        sent, received: bytes to each rank, and from each.
    """

    header: torch.Tensor
    given: torch.Tensor
    sent: list[int]
    received: list[int]
    tag: int
    arriving: list[torch.Tensor]

    def check(self, told: Sequence[int]) -> None:
        """Raise RuntimeError if some rank has begun another exchange. told: the headers of all ranks."""
        wanted = [size | self.tag << _TAG_SHIFT for size in self.received]
        for rank, (one, other) in enumerate(zip(told, wanted, strict=True)):
            if one != other:
                low = (1 << _TAG_SHIFT) - 1
                raise RuntimeError(
                    f"ranks are out of step: from rank {rank} came {one & low} bytes of kind {one >> _TAG_SHIFT}, "
                    f"expected {other & low} of {other >> _TAG_SHIFT}; with this transport all ranks must begin the "
                    "same exchanges in the same order"
                )

    def unpack(self, result: torch.Tensor) -> None:
        """Cut the received buffer, uint8, into the waiting tensors."""
        for target, part in zip(self.arriving, result.split([each.numel() for each in self.arriving]), strict=True):
            target.copy_(part)


def pack(outgoing: list[Message], incoming: list[Message], tag: int, size: int) -> Packed:
    """Pack an exchange among `size` ranks."""
    going: list[list[torch.Tensor]] = [[] for _ in range(size)]
    coming: list[list[torch.Tensor]] = [[] for _ in range(size)]
    for messages, parts in ((outgoing, going), (incoming, coming)):
        for rank, tensor in messages:
            parts[rank].append(bytes_of(tensor))
    sent, received = ([sum(part.numel() for part in parts) for parts in each] for each in (going, coming))
    given = torch.cat([part for parts in going for part in parts] or [torch.empty(0, dtype=torch.uint8)])
    header = torch.tensor([each | tag << _TAG_SHIFT for each in sent])
    return Packed(header, given, sent, received, tag, [part for parts in coming for part in parts])
