"""The sum of all ranks' gradients, started layer by layer while the backward pass of earlier layers goes on.

Gradients of the last layer are complete first. The flat buffer consists of buckets of whole layers. The sum of a bucket
starts when autograd has finished it and all buckets before it. So every rank starts the same sums in the same order,
from the last layer to the first. Autograd's own order does not matter, nor do parameters without a gradient on some
rank: remaining buckets start after the backward pass. Nothing waits inside the backward pass, since other ranks would
wait for a rank that waits there.

A small model is one bucket, summed at the end: there is no latency to hide, and another message costs its own.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from hpcgnn.comm import Communicator
from hpcgnn.comm.communicator import Exchange
from hpcgnn.errors import ConfigError

_LAYER = re.compile(r"(?:convs|norms)\.(\d+)\.")
Begin = Callable[[torch.Tensor], Exchange]


def by_layer(module: torch.nn.Module) -> list[list[torch.nn.Parameter]]:
    """Return the parameters of each layer with its norm, from the first layer to the last.

    Parameters outside of all layers join the first layer, whose sum comes last.
    """
    layers: dict[int, list[torch.nn.Parameter]] = {0: []}
    for name, parameter in module.named_parameters():
        found = _LAYER.match(name)
        layers.setdefault(int(found[1]) if found else 0, []).append(parameter)
    return [layers[number] for number in sorted(layers)]


@dataclass
class _Part:
    """Numbers of the flat gradients, and the parameters that they are of. awaited: those whose gradient is to come."""

    numbers: torch.Tensor
    parameters: list[torch.nn.Parameter]
    awaited: set[int] = field(default_factory=set)


class GradientSum:
    """Sums flat gradients (total,) over ranks, once per step: `with during(…): loss.backward()`, then `finish`.

    Made collectively, and used by all ranks that take a step.

    Args:
        layers: the result of `by_layer`, in the order of `flat`.
        least: smallest bucket in bytes, except for the first layer's, which comes last; 0 makes one bucket.
    """

    def __init__(
        self, flat: torch.Tensor, layers: Sequence[list[torch.nn.Parameter]], comm: Communicator, least: int
    ) -> None:
        self._flat = flat
        parts = _cut(flat, layers, least)
        self._parts = parts if len(parts) > 1 and comm.prepare_sums() else []
        self._begin: Begin | None = None
        self._under_way = list[Exchange]()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._has_come, index))
            for index, part in enumerate(self._parts)
            for parameter in part.parameters
            if parameter.requires_grad
        ]

    @contextlib.contextmanager
    def during(self, begin: Begin | None) -> Iterator[None]:
        """Run a backward pass as the body.

        Args:
            begin: begin(bucket) starts the sum of a bucket; None if only the whole can be summed.
        """
        self._under_way = []
        for part in self._parts:
            part.awaited = {id(parameter) for parameter in part.parameters if parameter.requires_grad}
        self._begin = begin if self._parts else None
        yield
        if self._begin is not None:
            while len(self._under_way) < len(self._parts):
                self._begin_next(self._begin)
            self._begin = None

    def finish(self, reduce: Callable[[torch.Tensor], None]) -> None:
        """Wait for the sums that were begun; reduce(flat) where none were."""
        if not self._under_way:
            reduce(self._flat)
        for each in self._under_way:
            each.finish()

    def close(self) -> None:
        """Take no more notice of the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _has_come(self, index: int, parameter: torch.Tensor) -> None:
        """A gradient of part `index` is there."""
        if self._begin is None:
            return
        if index < len(self._under_way):
            raise ConfigError(
                "a layer's gradient grew after all gradients of the layer had come; expected one backward pass for a "
                "step, of which each parameter gets one gradient"
            )
        self._parts[index].awaited.discard(id(parameter))
        while len(self._under_way) < len(self._parts) and not self._parts[len(self._under_way)].awaited:
            self._begin_next(self._begin)

    def _begin_next(self, begin: Begin) -> None:
        self._under_way.append(begin(self._parts[len(self._under_way)].numbers))


def _cut(flat: torch.Tensor, layers: Sequence[list[torch.nn.Parameter]], least: int) -> list[_Part]:
    """The parts, from the last layer to the first."""
    parts, stop = list[_Part](), len(flat)
    found: list[torch.nn.Parameter] = []
    for number, layer in reversed(list(enumerate(layers))):
        found = [*layer, *found]
        size = sum(parameter.numel() for parameter in found)
        if found and (number == 0 or (least and size * flat.itemsize >= least)):
            parts.append(_Part(flat[stop - size : stop], found))
            stop, found = stop - size, []
    return parts
