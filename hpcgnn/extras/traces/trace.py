"""`--trace`: the activity of every rank in some epochs, as files for Perfetto (https://ui.perfetto.dev) and Chrome's
`about:tracing`.

A rank's file is in the Trace Event Format: complete events (`"ph": "X"`) with `ts` and `dur` in microseconds of rank
0's clock since the trace began, and `pid` for the rank. In the traced epochs, the communicator has a SpanRecorder that
records streams and waits. This module adds the clock's phases and the kernels to the same tape. Other epochs have no
tape and no cost.
"""

import contextlib
import gzip
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from hpcgnn import __version__, kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.comm.span_recorder import SpanRecorder, clock
from hpcgnn.config import Config
from hpcgnn.engine.hooks import Plugin
from hpcgnn.errors import ConfigError, RunDirError
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.option_fields import option
from hpcgnn.options.run import RunConfig
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.records import to_json, write_atomically

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

log = logging.getLogger("hpcgnn")
FOLDER = "trace"
_ROUNDS = 8  # of questions for the time of rank 0
# Categories of kernels in a trace, by the beginning of their name. All others have the category "kernel".
CATEGORIES = {
    "gather": "gather",
    "pack": "pack",
    "attend": "attention",
    "multiply": "product",
    "project": "product",
}


def epochs_to_trace(text: str) -> tuple[int, int]:
    """(first, last) epoch of --trace, from 1; the last is 0 where there is none. Raises ConfigError."""
    first, dash, last = text.partition("-")
    ends = [int(word) if word.isascii() and word.isdigit() else 0 for word in (first, last)]
    if not text:
        return 1, 0
    if not dash:  # a number of epochs: the first makes what lasts, and is like no other
        ends = [2, ends[0] + 1]
    if not 1 <= ends[0] <= ends[1]:
        raise ConfigError(
            f"--trace: expected a number of epochs, such as 3, or the first and the last as in 2-4, got {text!r}"
        )
    return ends[0], ends[1]


@dataclass(frozen=True, kw_only=True)
class TraceConfig(RunConfig):
    """The option `trace`."""

    trace: str = option(
        "",
        "record spans of all ranks for N epochs, or A-B (default: 2-4)",
        details="Phases, turns of the halo, kernels, waits and reductions, for https://ui.perfetto.dev, in trace/ of "
        "the run directory. N: a number of epochs after the first.",
        bare="2-4",
        check=epochs_to_trace,
    )


def asked(config: Config) -> str:
    """The value of `trace`."""
    return cast(TraceConfig, config.run).trace


def rule(of: RunPlan) -> Iterator[str]:
    """Clocks are compared by messages between two ranks alone."""
    if asked(of.config) and not of.transport.pairwise:
        yield (
            f"--trace sends messages between two ranks alone, which --comm {of.config.run.comm} cannot: expected "
            "--comm mpi or torch"
        )


class Tracer(Plugin):
    """Records the epochs that `--trace` names, on this rank. `epoch` is collective where its epoch is traced."""

    def __init__(self, config: Config, comm: Communicator) -> None:
        self._first, self._last = epochs_to_trace(asked(config))
        self._comm, self._folder = comm, Path(config.run.run_dir) / FOLDER
        self._tape: SpanRecorder | None = None
        self.epochs: list[int] = []

    @contextlib.contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """The body is epoch `number`, from 1."""
        if not self._first <= number <= self._last:
            yield
            return
        if self._tape is None:
            self._begin()
        tape = self._comm.tape = self._tape
        assert tape is not None, "it has begun"
        self.epochs.append(number)
        try:
            with tape.span(f"epoch {number}", "epoch"), kernels.watched(self._kernel):
                yield
        finally:
            self._comm.tape = None
        if number == self._last:
            self._write()

    @contextlib.contextmanager
    def run(self, trainer: "Trainer") -> Iterator[None]:
        yield
        if self._tape is not None:  # the run was over, or stopped, before the last epoch to trace
            self._write()
        if not self.epochs and self._comm.rank == 0:
            log.warning("nothing was traced: --trace %d-%d names no epoch of this run", self._first, self._last)

    def watch(self, phase: str) -> AbstractContextManager[None]:
        tape = self._comm.tape
        return contextlib.nullcontext() if tape is None else tape.span(phase, "phase")

    def _kernel(self, name: str, arguments: tuple[Any, ...]) -> AbstractContextManager[None]:
        """The watch of the kernels."""
        assert self._tape is not None, "kernels are watched in traced epochs"
        beginning = next((each for each in CATEGORIES if name.startswith(each)), "")
        shapes = [list(shape) for each in arguments if (shape := getattr(each, "shape", None)) is not None]
        return self._tape.span(name, CATEGORIES.get(beginning, "kernel"), {"shapes": shapes})

    def _begin(self) -> None:
        self._offset, self._uncertain = offset_to_first(self._comm)
        hosts = self._comm.allgather_object((socket.gethostname(), clock() + self._offset))
        if hosts[self._comm.rank][0] == hosts[0][0]:  # processes of one system read the same clock
            self._offset = self._uncertain = 0.0
        self._origin = hosts[0][1]
        self._tape = SpanRecorder()

    def checkpoint(self) -> AbstractContextManager[None]:
        return self.watch("checkpoint")

    def _write(self) -> None:
        """Write the file of the traced epochs. A write error becomes a line in the log. Collective."""
        comm, tape = self._comm, self._tape
        assert tape is not None, "it has begun"
        failure = ""
        try:
            self._folder.mkdir(exist_ok=True)
            if comm.rank == 0:
                self._remove_others()
            text = to_json(self._document(tape))
            write_atomically(self._folder / f"rank-{comm.rank:05d}.json.gz", gzip.compress(text.encode(), 5, mtime=0))
        except (OSError, RunDirError) as error:  # a run is worth more than its trace
            failure = str(error)
        found = comm.allgather_object((tape.lost, self._uncertain, failure))
        lost, uncertain, failed = (max(column) for column in zip(*found, strict=True))
        self._tape = None
        if comm.rank == 0 and failed:
            log.warning("the trace is not complete, and training goes on: %s", failed)
        elif comm.rank == 0:
            log.info(
                "trace of epochs %d-%d: %s/rank-*.json.gz, for https://ui.perfetto.dev%s",
                *(self.epochs[0], self.epochs[-1], self._folder),
                f"; clocks of hosts agree to {uncertain * 1e6:.0f} microseconds" if uncertain else "",
            )
            if lost:
                log.warning(
                    "the trace lacks up to %s spans of a rank at its end: a rank keeps %s. Trace fewer epochs, or use "
                    "a larger --halo-buffer",
                    *(f"{lost:,}", f"{len(tape.spans):,}"),
                )

    def _remove_others(self) -> None:
        """Files of ranks that there are no longer: the run began on more of them."""
        for file in self._folder.glob("rank-[0-9]*.json.gz"):
            if int(file.name[5:].split(".")[0]) >= self._comm.size:
                file.unlink()

    def _document(self, tape: SpanRecorder) -> dict[str, Any]:
        """Return the JSON document of this rank."""
        rank, host = self._comm.rank, socket.gethostname()
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank} on {host}"}},
            {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}},
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": 0, "args": {"name": "main thread"}},
        ]
        shift = self._offset - self._origin
        for name, category, begin, end, about in tape.spans:
            event = {"ph": "X", "name": name, "cat": category, "pid": rank, "tid": 0}
            event |= {"ts": round((begin + shift) * 1e6, 3), "dur": round((end - begin) * 1e6, 3)}
            events.append(event if about is None else {**event, "args": about})
        known = {
            "program": f"hpcgnn {__version__}",
            "rank": rank,
            "ranks": self._comm.size,
            "host": host,
            "process": os.getpid(),
            "epochs": self.epochs,
            "seconds_added_to_clock": self._offset,
            "seconds_clock_uncertain": self._uncertain,
            "spans_lost": tape.lost,
        }
        return {"displayTimeUnit": "ms", "otherData": known, "traceEvents": events}


def make(config: Config, session: Session, buffers: HaloBuffers) -> Tracer | None:
    """The plugin of a job with `--trace`."""
    return Tracer(config, session.comm) if asked(config) else None


def offset_to_first(comm: Communicator, now: Callable[[], float] = clock) -> tuple[float, float]:
    """Find the offset of rank 0's clock. Collective.

    Each rank in turn asks for rank 0's time repeatedly. The quickest answer counts, and was right somewhere between
    question and answer (Cristian, 1989).

    Returns:
        (seconds to add to this rank's clock to get rank 0's, largest possible error).
    """
    word, best = torch.zeros(1, dtype=torch.float64), (0.0, float("inf"))
    for rank in range(1, comm.size):
        for _ in range(_ROUNDS):
            if comm.rank == 0:
                comm.exchange([], [(rank, word)], "control").finish()
                comm.exchange([(rank, word.fill_(now()))], [], "control").finish()
            elif comm.rank == rank:
                asked = now()
                comm.exchange([(0, word)], [], "control").finish()
                comm.exchange([], [(0, word)], "control").finish()
                half = (now() - asked) / 2
                if half < best[1]:
                    best = float(word) - (asked + half), half
    return best if comm.rank else (0.0, 0.0)
