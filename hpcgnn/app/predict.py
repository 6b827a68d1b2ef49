"""`hpcgnn predict`: the predictions of a trained model for each node, in a file for people and their tools.

The file has classes, probabilities, logits or hidden states, of all nodes or of some. Rows are in the original order,
with the ids of the user's tables. No rank holds the rows of all nodes (graphfile/original_order.py).
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tabulate import tabulate

from hpcgnn.app.corrections import Correction, PredictedTable
from hpcgnn.app.loaded_model import LoadedModel, hidden_state, load_trained
from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graphfile.hdf5 import text_type
from hpcgnn.graphfile.label_files import CLASSIFICATION, REGRESSION
from hpcgnn.graphfile.original_order import OriginalOrder
from hpcgnn.graphfile.own_ids import kind_of_ids, longest_id, nodes_of, read_ids
from hpcgnn.graphfile.schema import ID_NUMBERS, GraphMeta
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.likely_names import file_beside
from hpcgnn.nn.registry import MODELS
from hpcgnn.outputs.files import WRITERS, Contents, check_results, files_read
from hpcgnn.records import to_json
from hpcgnn.tasks.base import Task
from hpcgnn.tasks.registry import TASKS
from hpcgnn.terminal import tell

_NODE = np.dtype(np.int64)
_HEADINGS = ("id", "ids", "node", "nodes", "node_id")


@dataclass(frozen=True)
class PredictRequest:
    """The request of `hpcgnn predict`.

    Attributes:
        output: the file.
        layer: number of the layer with the wanted hidden state, from 1, or 0 for none.
        nodes: a file of ids, or ''.
        other_graph: whether the graph may differ from the run's.
        corrections: corrections of the model's outputs.
        table: a table that is wanted in place of rows of nodes, or None.
    """

    output: str
    force: bool = False
    probabilities: bool = False
    logits: bool = False
    layer: int = 0
    nodes: str = ""
    other_graph: bool = False
    corrections: Sequence[Correction] = ()
    table: PredictedTable | None = None

    def check(self, config: Config) -> None:
        """Raise ConfigError for a layer that has no hidden state, and for probabilities where there are none."""
        task = TASKS[config.task.task]
        if task.traits.reads_on and self.table is None:
            raise ConfigError(
                f"{config.run.run_dir} is a run of {task.name} ({task.said}), which has outputs at many times: "
                "expected an option for them; `hpcgnn predict --help` has it"
            )
        for correction in self.corrections:
            correction.check(task.name)
        if self.table is not None:
            self.table.check(config, self)
        if self.probabilities and task.probabilities is None:
            raise ConfigError(
                f"--probabilities: {config.run.run_dir} is a run of {task.name}, which predicts {task.said} and no "
                "probabilities; leave the option out"
            )
        hidden = config.model.layers - 1 if MODELS[config.model.model].stacked else 0
        if self.layer < 0 or self.layer > hidden:
            expected = f"a layer in 1..{hidden}" if hidden else "none: this model has no hidden layer"
            raise ConfigError(
                f"--embeddings {self.layer}: expected {expected}; the output of the last layer is --logits"
            )

    @property
    def inputs(self) -> list[str]:
        """Further files that the command reads."""
        return [self.nodes, *(() if self.table is None else self.table.inputs)]


def predict(config: Config, session: Session, weights: str, request: PredictRequest) -> int:
    """Write the predictions of the newest checkpoint of config.run.run_dir on config.data.graph. Collective.

    Returns:
        the exit code 0.
    """
    comm = session.comm
    start_logging(comm.rank)
    with comm.together("looking where predictions go", on_one=True):
        request.check(config)
        check_results("--output", request.output, comm, [*files_read(config), *request.inputs], request.force)
    with comm.together("reading the list of nodes", on_one=True):
        asked = comm.rank == 0 and (request.nodes or request.table is not None)
        nodes = _read_lists(config.data.graph, request) if asked else None
    trained = load_trained(config, session, weights, request.other_graph, request.corrections)
    with contextlib.ExitStack() as stack:
        hidden = stack.enter_context(hidden_state(trained.trainer.model, request.layer)) if request.layer else []
        logits, seconds = trained.logits()
    rows, counted = dict[str, torch.Tensor](), "nodes"
    if request.table is not None:
        started, counted = time.perf_counter(), request.table.counted
        with torch.no_grad(), comm.ledger.booked_as("evaluation"):
            count = request.table.write(request.output, trained, logits, nodes)
        seconds += time.perf_counter() - started
    else:
        rows = _rows_of_nodes(trained, logits, hidden, request)
        origin = trained.origin() | ({"layer": request.layer} if request.layer else {})
        source = Source(config.data.graph, trained.meta, trained.task, origin)
        count = write_rows(request.output, rows, trained.trainer.local, source, comm, nodes)
    if comm.rank == 0:
        shown = [("model", config.model.model), ("weights", f"{weights}, of epoch {trained.epoch}")]
        shown += [(counted, f"{count:,}"), *([("written", ", ".join(rows))] if rows else [])]
        shown += [("ranks × threads", f"{comm.size} × {session.threads}"), ("seconds", f"{seconds:.3f}")]
        tell(tabulate(shown, tablefmt="rounded_outline", disable_numparse=True))
        tell(f"predictions in {request.output}")
    return 0


def _read_lists(graph: str, request: PredictRequest) -> np.ndarray | None:
    """Read the listed nodes, ascending, or None, and the files of the table. Raises FormatError."""
    with GraphFile(graph) as file:
        if request.table is not None:
            request.table.read(file)
        if not request.nodes:
            return None
        return np.unique(nodes_of(file, read_list(request.nodes), f"--nodes {request.nodes}"))


def _rows_of_nodes(
    trained: LoadedModel, logits: torch.Tensor, hidden: list[torch.Tensor], request: PredictRequest
) -> dict[str, torch.Tensor]:
    """{name: (n_p, width)} of own nodes: the requested rows."""
    rows = {}
    if trained.task.rows != "embedding" or not request.layer:
        rows[trained.task.rows] = trained.chosen(logits)
    if request.probabilities:
        exact = logits.float() if logits.dtype != torch.float64 else logits
        assert trained.task.probabilities is not None, "refused before"
        rows["probability"] = trained.task.probabilities(exact)
    if request.logits:
        rows["logit"] = logits
    if request.layer:
        rows["embedding"] = hidden[0]
    return rows


def read_list(path: str | Path) -> list[str]:
    """The words of a file of ids, one in a line; a heading such as id is left out. Raises FormatError."""
    try:
        text = Path(path).read_text("utf-8-sig")  # opened with any line end read as \n
    except FileNotFoundError as error:
        raise FormatError(f"--nodes {path}: there is no such file{file_beside(path)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"--nodes {path}: expected a text file with an id of a node in each line: {error}") from error
    words = [word for line in text.split("\n") if (word := line.strip())]
    words = words[1:] if words and words[0].lower() in _HEADINGS else words
    if not words:
        raise FormatError(f"--nodes {path} names no node; expected an id in each line")
    return words


def _vectors(widths: Mapping[str, int], task: str) -> list[str]:
    """Which rows are one number for each node because the labels are: a class, or one target and its scaled form."""
    names = {CLASSIFICATION: ["prediction"], REGRESSION: ["prediction", "logit"]}.get(task, [])
    return [name for name in names if widths.get(name) == 1]


@dataclass(frozen=True)
class Source:
    """The origin of rows.

    Attributes:
        graph: path of the graph file.
        meta: its metadata.
        task: the task of the results.
        origin: their provenance.
    """

    graph: str
    meta: GraphMeta
    task: Task
    origin: Mapping[str, Any]


def write_rows(
    path: str | Path,
    rows: Mapping[str, torch.Tensor],
    local: LocalGraph,
    source: Source,
    comm: Communicator,
    wanted: np.ndarray | None = None,
) -> int:
    """Write rows of owned nodes, which need not come from a run. Collective.

    Args:
        path: the file; its suffix gives the format.
        rows: {name: (n_p, width)}.
        local: the rank's share of the graph.
        source: the origin of the rows.
        comm: the communicator.
        wanted: int64, ascending, the nodes whose rows are written, on rank 0; None for all.

    Returns:
        the number of rows, on rank 0.
    """
    rows = {name: each.float() if each.dtype == torch.bfloat16 else each for name, each in rows.items()}
    wanted = comm.broadcast_object(wanted)
    order, count = OriginalOrder(rows, local.original_id, local.num_nodes, comm, wanted), 0
    with comm.together("opening the graph for its ids", on_one=True):
        file = GraphFile(source.graph, source.meta) if comm.rank == 0 else None
    if file is None:
        order.hand_over()
    else:
        with file:
            count = _write(path, order, file, source, wanted)
    comm.barrier()
    return count


def _write(path: str | Path, order: OriginalOrder, file: GraphFile, source: Source, wanted: np.ndarray | None) -> int:
    """Write the rows on rank 0; return their number."""
    meta, task, kind = source.meta, source.task, kind_of_ids(file)
    names = meta.type_names.get("classes", ())
    column_names = names if task.traits.labels and task.name != CLASSIFICATION else ()
    contents = Contents(
        num_rows=meta.num_nodes if wanted is None else len(wanted),
        widths=order.widths,
        dtypes=order.dtypes,
        predicted=task.columns(order.widths.get(task.rows, 0), column_names),
        some=wanted is not None,
        ids=kind != "",
        id_dtype=text_type(longest_id(file)) if kind == "words" else file.dtype(ID_NUMBERS) if kind else _NODE,
        class_names=names if task.name == CLASSIFICATION else (),
        origin=dict(source.origin) | ({"column_names": to_json(column_names)} if column_names else {}),
        vectors=_vectors(order.widths, task.name),
        column_names=column_names,
    )
    with WRITERS[Path(path).suffix.lower()](path, contents) as put:
        for nodes, slab in order.slabs():
            put(nodes, read_ids(file, nodes) if kind else None, slab)
    return contents.num_rows
