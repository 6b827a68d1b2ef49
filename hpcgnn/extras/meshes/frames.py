"""Snapshots of own nodes in memory: a few times, the next ones read while the present one is computed."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

#: {field: (n_p, F)} of one time.
Frame = dict[str, torch.Tensor]


class Frames:
    """The frames of the times that were asked for last, `most` of them. A thread reads them in the order of asking."""

    def __init__(self, read: Callable[[int], Frame], most: int) -> None:
        """read: the frame of a time; its errors are raised where the frame is taken."""
        self._read, self._most = read, most
        self._held: OrderedDict[int, Future[Frame]] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, "snapshots")

    def ask(self, times: Iterable[int]) -> None:
        """Begin to read the frames of some times."""
        for time in times:
            if time not in self._held:
                self._held[time] = self._reader.submit(self._read, time)
            self._held.move_to_end(time)
        while len(self._held) > self._most:
            self._held.popitem(last=False)[1].cancel()

    def held(self) -> list[Frame]:
        """The frames in memory."""
        return [each.result() for each in self._held.values() if each.done() and not each.cancelled()]

    def __getitem__(self, time: int) -> Frame:
        """The frame of a time."""
        self.ask([time])
        return self._held[time].result()
