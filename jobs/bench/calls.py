"""How many functions of Python, and how many files, a hidden layer of a step enters: a plugin of a training job.

    mpiexec -n 2 python -m hpcgnn train --graph GRAPH --model sage --layers 4 --epochs 3 --plugin jobs/bench/calls.py

The second hidden layer of the last epoch counts, on rank 0. Forwards, its calls begin where the model asks for the
layer's graph, and end where it asks for the next. Backwards, they are those of the gradient of its convolution. A line
has the calls of hpcgnn alone, and those with torch and the standard library. HPCGNN_CALLS=FILE lists all of them.
"""

import contextlib
import os
import sys
from pathlib import Path

from hpcgnn.engine.hooks import Plugin
from hpcgnn.plugins.registry import TRAINER_PLUGINS


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

    def take_best(self):
        """Print, once the last epoch is over."""
        if self._rank:
            return
        layers = self._places("Graph.at")
        gradient = self._places("Convolve.backward")[1]
        depth, end = self._calls[gradient][0], gradient + 1
        while self._calls[end][0] > depth:
            end += 1
        for name, calls in ("forward", self._calls[layers[1] : layers[2]]), ("backward", self._calls[gradient:end]):
            own = [file for _, file, _ in calls if f"{os.sep}hpcgnn{os.sep}" in file and "site-packages" not in file]
            every = {file for _, file, _ in calls}
            print(f"{name}: {len(own)} calls in {len(set(own))} files; with libraries {len(calls)} in {len(every)}")
            if "HPCGNN_CALLS" in os.environ:
                with Path(os.environ["HPCGNN_CALLS"]).open("a") as file:
                    file.writelines(f"{name} {'  ' * depth}{path} {function}\n" for depth, path, function in calls)

    def _places(self, name):
        return [place for place, (_, _, function) in enumerate(self._calls) if function == name]


TRAINER_PLUGINS.register("calls", lambda trainer, learns: Calls(trainer.comm.rank) if learns else None)
