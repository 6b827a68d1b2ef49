"""How many functions of Python, and how many files, a hidden layer of a step enters: a plugin of a training job.

    mpiexec -n 2 python -m hpcgnn train --graph GRAPH --model sage --layers 4 --epochs 3 --plugin jobs/bench/calls.py

The second hidden layer of the last epoch counts, on rank 0. Forwards, its calls begin where the model asks for the
layer's graph, and end where it asks for the next. Backwards, they are those of the gradient of its convolution. A line
has the calls of hpcgnn alone, and those with torch and the standard library. HPCGNN_CALLS=FILE lists all of them. A
matrix of 256 KiB or more takes more calls, since the arena places it.
"""

import contextlib
import os
import sys
from pathlib import Path

import hpcgnn
from hpcgnn.engine.hooks import Plugin
from hpcgnn.plugins.registry import TRAINER_PLUGINS

PACKAGE = str(Path(hpcgnn.__file__).parent)


class Calls(Plugin):
    """Counts calls of an epoch, each as (depth, file, name)."""

    def __init__(self, rank):
        self._rank, self._calls, self._depth = rank, [], 0

    def _seen(self, frame, event, argument):
        if event == "call":
            self._calls.append((self._depth, frame.f_code.co_filename, frame.f_code.co_qualname))
        self._depth += {"call": 1, "return": -1}.get(event, 0)

    @contextlib.contextmanager
    def epoch(self, number):
        self._calls.clear()
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)

    @contextlib.contextmanager
    def run(self, trainer):
        yield
        if self._rank:
            return
        layers, gradients = self._places("Graph.at"), self._places("Convolve.backward")
        if len(layers) < 4 or len(gradients) < 2:
            print("calls.py: expected a model of at least 4 linear layers (--model sage --layers 4), got no hidden one")
            return
        begin, depth = gradients[1], self._calls[gradients[1]][0]
        end = next(place for place in range(begin + 1, len(self._calls)) if self._calls[place][0] <= depth)
        for name, calls in ("forward", self._calls[layers[1] : layers[2]]), ("backward", self._calls[begin:end]):
            own = [file for _, file, _ in calls if file.startswith(PACKAGE)]
            every = {file for _, file, _ in calls}
            print(f"{name}: {len(own)} calls in {len(set(own))} files; with libraries {len(calls)} in {len(every)}")
            if "HPCGNN_CALLS" in os.environ:
                with Path(os.environ["HPCGNN_CALLS"]).open("a") as file:
                    file.writelines(f"{name} {'  ' * depth}{path} {function}\n" for depth, path, function in calls)

    def _places(self, name):
        return [place for place, (_, _, function) in enumerate(self._calls) if function == name]


TRAINER_PLUGINS.register("calls", lambda trainer, learns: Calls(trainer.comm.rank) if learns else None)
