"""Where the seconds of an epoch go: every operation of torch, every kernel and every wait, booked as it is done.

Looked at from outside: a dispatch mode of torch sees its operations, and the functions of the kernel library, of the
wire and of the communicator are wrapped in this process. The program itself knows nothing of it. Looking costs time
(some microseconds for each operation); what it costs is seen by comparing epochs with and without.
"""

import contextlib
import functools
import time
from collections import defaultdict
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpcgnn import kernels
from hpcgnn.exchange import transfer, wire
from hpcgnn.kernels.library import load

#: What the lines of the ledger are. rest: Python, autograd, and what else is between operations.
PARTS = ("GEMM", "gather", "elementwise", "pack", "wait", "reduction", "optimizer", "rest")
PRODUCTS = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "mv", "addmv"}
#: Kernels that read rows at random, with the position of the rows, of indptr and of the indices among their arguments.
GATHERS = {
    "gather": (1, 2, 3),
    "attend_forward": (4, 5, 6),
    "attend_backward": (4, 5, 6),
    "gather_largest": (2, 3, 4),
    "gather_matching": (2, 3, 4),
}
_SMALL = ("supported_paths", "probe", "check_block", "multiplies", "rounds", "factors")
# Inside of these everything belongs to them.
_OWNERS = {"reduction": "reduction", "step": "optimizer"}


def _multiply(library, out, x, weight, *rest):
    return [(library.multiply, (x, weight), (out, x, weight, *rest))]


def _project(library, y, x, weight, rule):
    return _multiply(library, y, x, weight, None, False)


def _project_backward(library, gradient, x, weight, rule, gx, g_weight, dots, bias, sums, y_sums, add, scaled):
    rest = None, None, g_weight, None, None, None, None, False, False
    of_weight = [(library.project_backward, (x.t(), gradient), (gradient, x, weight, *rest))]
    return of_weight + ([] if gx is None else _multiply(library, gx, gradient, weight.t(), None, add))


#: Kernels that are products, and what else is done on the way: the products alone as [(function, factors, its
#: arguments)].
PRODUCT_KERNELS = {"multiply": _multiply, "project": _project, "project_backward": _project_backward}


class Watch:
    """The watch of a Trainer's clock. While `active`, books each phase's seconds in `booked`: {part: [wall,
    processor]}.

    recorder: None, or told of product(operation, factors, args, [kwargs, result]) and gathered(rows, indptr, indices).
    """

    def __init__(self):
        self.active, self.recorder = False, None
        self._stack, self._mode = [], _Operations(self)
        self.take()

    def take(self):
        """What was booked since the last call."""
        found, self.booked = getattr(self, "booked", None), defaultdict(lambda: [0.0, 0.0])
        return found and {part: tuple(found[part]) for part in PARTS}

    @contextlib.contextmanager
    def __call__(self, phase):
        if not self.active or phase == "evaluation":
            yield
            return
        # A kernel that makes a whole convolution is left out while someone looks: its steps have lines of their own.
        apart = kernels.watched(lambda name, arguments: contextlib.nullcontext())
        with apart, self._mode, self.part(_OWNERS.get(phase, "rest")):
            yield

    @contextlib.contextmanager
    def part(self, name):
        """Book the body's time under a part, and not under the part around it."""
        self._turn()
        self._stack.append(name)
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()

    @property
    def free(self):
        """Whether an operation would be booked by what it is: not where it serves a part that owns it."""
        return bool(self._stack) and self._stack[-1] == "rest"

    def _turn(self):
        now = time.perf_counter(), time.process_time()
        if self._stack:
            line = self.booked[self._stack[-1]]
            line[0] += now[0] - self._since[0]
            line[1] += now[1] - self._since[1]
        self._since = now

    def install(self, comm):
        """Wrap the kernels, the wire and the communicator of this process."""
        library = load().kernels
        parts = dict.fromkeys(GATHERS, "gather") | dict.fromkeys(PRODUCT_KERNELS, "GEMM") | {"pack": "pack"}
        products = SimpleNamespace(
            **{name: getattr(library, name) for name in PRODUCT_KERNELS if hasattr(library, name)}
        )
        for name in [name for name in dir(library) if not name.startswith("_") and name not in _SMALL]:
            part, function, alone = parts.get(name, "elementwise"), getattr(library, name), PRODUCT_KERNELS.get(name)
            if not callable(function):  # what the library knows of the processor
                continue
            alone = alone and functools.partial(alone, products)
            setattr(library, name, self._wrapped(function, part, GATHERS.get(name), alone))
        wire.Wire.encode = self._wrapped(wire.Wire.encode, "pack")
        transfer.decode = wire.decode = self._wrapped(wire.decode, "pack")  # each calls it by its own name
        comm.exchange = self._wrapped(comm.exchange, "pack")
        comm.complete = self._wrapped(comm.complete, "wait", anywhere=True)

    def _wrapped(self, function, part, places=None, products=None, anywhere=False):
        def timed(*args, **kwargs):
            if not self._stack or not (anywhere or self.free):
                return function(*args, **kwargs)
            if places is not None and self.recorder is not None:
                self.recorder.gathered(*(args[place] for place in places))
            if products is not None and self.recorder is not None:
                for alone in products(*args, **kwargs):
                    self.recorder.product(*alone)
            with self.part(part):
                return function(*args, **kwargs)

        return timed


class _Operations(TorchDispatchMode):
    """Books what torch computes: products as GEMM, all else as elementwise."""

    def __init__(self, watch):
        super().__init__()
        self._watch = watch

    @classmethod
    def _should_skip_dynamo(cls):
        """torch asks its modes; else the first operation loads its compiler."""
        return False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        watch, kwargs = self._watch, kwargs or {}
        if not watch.free:
            return operation(*args, **kwargs)
        product = operation.overloadpacket.__name__ in PRODUCTS
        with watch.part("GEMM" if product else "elementwise"):
            result = operation(*args, **kwargs)
        if product and watch.recorder is not None:
            factors = [x for x in args if isinstance(x, torch.Tensor)][-2:]
            watch.recorder.product(operation, factors, args, kwargs, result)
        return result
