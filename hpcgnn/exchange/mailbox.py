"""Rows that are sent in one epoch and used in a later one: messages to the same peers that outlive the step that sent
them.

A stream ends before the layer does, in bounded memory. Rows used r epochs later cannot. A mailbox keeps r + 1 epochs of
rows, in the form in which they came, as one message from each peer. They arrive in the background of whole epochs.
"""

from dataclasses import dataclass

import torch

from hpcgnn.comm import Communicator, Exchange, Finished, PersistentExchange
from hpcgnn.exchange.buffers import Lease
from hpcgnn.exchange.wire import Form, cut, read_rows


@dataclass
class Letter:
    """The received messages of one epoch, or those on their way. data: bytes of the messages of all peers. messages:
    the prepared messages in both directions.
    """

    data: torch.Tensor
    messages: PersistentExchange | None = None
    under_way: Exchange | None = None

    def finish(self) -> None:
        """Wait until it is here."""
        if self.under_way is not None:
            self.under_way.finish_receiving()


class Mailbox:
    """One exchange of every epoch. Letters are used `delay` epochs after they were posted; as long as there is none so
    old, the newest is waited for and used.

    sources, dests: [(rank, rows)] that rows come from and go to, in the order in which they lie.
    """

    def __init__(
        self,
        comm: Communicator,
        sources: list[tuple[int, int]],
        dests: list[tuple[int, int]],
        delay: int,
        kind: str,
    ) -> None:
        self._comm, self._sources, self._dests = comm, sources, dests
        self._delay, self._kind = delay, kind
        self._letters: list[Letter] = []
        self._sent: Exchange = Finished()
        self._outgoing: torch.Tensor | None = None
        self._outgoing_form: Form | None = None
        self.num_rows = sum(rows for _, rows in sources)

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept from epoch to epoch."""
        tensors = [letter.data for letter in self._letters] + [self._outgoing]
        return sum(t.nbytes for t in tensors if t is not None)

    def prepare(self, form: Form) -> list[tuple[torch.Tensor, int]]:
        """The messages to be filled, one for each peer of `dests` that gets rows: [(bytes, rows)]. Before `post`."""
        self.form = form
        self._sent.finish_sending()
        if self._outgoing is None or self._outgoing_form != form:
            size = sum(form.message_bytes(rows) for _, rows in self._dests)
            self._outgoing, self._outgoing_form = torch.empty(size, dtype=torch.uint8), form
            for letter in self._letters:
                letter.messages = None
        return [(part, rows) for _, part, rows in cut(self._outgoing, self._dests, self.form)]

    def post(self) -> None:
        """Send the filled result of `prepare`, and post the receives; forget the oldest letter."""
        assert self._outgoing is not None, "`prepare` comes first"
        letter = self._letters.pop(0) if len(self._letters) > self._delay else None
        if letter is None or letter.messages is None:
            size = sum(self.form.message_bytes(rows) for _, rows in self._sources)
            if letter is None or letter.data.nbytes != size:
                letter = Letter(torch.empty(size, dtype=torch.uint8))
            outgoing = [(rank, part) for rank, part, _ in cut(self._outgoing, self._dests, self.form)]
            incoming = [(rank, part) for rank, part, _ in cut(letter.data, self._sources, self.form)]
            letter.messages = self._comm.prepare(outgoing, incoming, self._kind)
        self._sent = letter.under_way = letter.messages.begin()
        self._letters.append(letter)
        letter.under_way.progress()

    def open(self) -> None:
        """Wait for the letter of this epoch's use."""
        self._open = self._letters[0 if len(self._letters) > self._delay else -1]
        self._open.finish()

    def rows(self, start: int, stop: int, lease: Lease) -> torch.Tensor:
        """(stop − start, F) of the opened letter; widened ones are valid until the next call."""
        form = self.form
        if not form.narrow:
            return self._open.data.view(form.dtype).view(self.num_rows, form.width)[start:stop]
        return read_rows(cut(self._open.data, self._sources, form), form, start, stop, lease)

    def state(self) -> dict[str, torch.Tensor]:
        """{name: tensor} of the rows for later use, after all have arrived. Not collective, if all ranks call it."""
        self._sent.finish_sending()
        for letter in self._letters:
            letter.finish()
        return {f"letter-{index}": letter.data for index, letter in enumerate(self._letters)}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from there."""
        names = sorted(
            (name for name in tensors if name.startswith("letter-")), key=lambda name: int(name.split("-")[1])
        )
        self._letters = [Letter(tensors[name]) for name in names]
