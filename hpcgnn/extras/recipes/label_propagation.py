"""`hpcgnn label-propagation`: predicts the labels of all nodes from those in training, without a model."""

import time
from dataclasses import dataclass

import torch
from tabulate import tabulate

from hpcgnn.app.bring_up import make_buffers, opened
from hpcgnn.app.predict import Source, write_rows
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.engine.summary import rows_of_metrics
from hpcgnn.errors import ConfigError
from hpcgnn.extras.recipes.spreading import Spreading, as_logits
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.label_files import CLASSIFICATION
from hpcgnn.memory.resident import use_threads
from hpcgnn.options.inputs import Inputs
from hpcgnn.outputs.files import check_results, files_read
from hpcgnn.plan.model_spec import DTYPES
from hpcgnn.records import shown_number
from hpcgnn.tasks.classification import Classification
from hpcgnn.tasks.labels import Evaluator
from hpcgnn.terminal import tell


@dataclass(frozen=True)
class LabelRequest:
    """alpha: the part that comes from the neighbours in a step; output: a file for the classes, or ''."""

    alpha: float = 0.9
    steps: int = 50
    output: str = ""
    probabilities: bool = False
    force: bool = False


def propagate_labels(config: Config, session: Session, request: LabelRequest) -> int:
    """Spread the training nodes' labels of config.data.graph, show the accuracy, and write the requested file.
    Collective.

    Returns:
        the exit code 0.
    """
    comm, dtype = session.comm, DTYPES[config.run.precision]
    start_logging(comm.rank)
    request_of_all = {"the request": str(request)}
    use_threads(session.threads)
    with comm.together("looking where classes go", on_one=True):
        if request.output:
            check_results("--output", request.output, comm, files_read(config), request.force)
    with opened(config, comm, facts=request_of_all) as (config, graph):
        file, meta = graph.file, graph.file.meta
        if meta.task != CLASSIFICATION:
            raise ConfigError.on_all(
                f"label-propagation spreads one class per node, and the labels of {file.path} are for {meta.task}"
            )
        buffers = make_buffers(meta.num_classes * dtype.itemsize, config)
        loops, cap = "add" if config.data.self_loops == "add" else "keep", buffers.cap(buffers.widest_row)
        local = load_local_graph(file, graph.clusters, comm, cap, loops, dtype, inputs=Inputs(file=False))
    started = time.perf_counter()
    with torch.no_grad(), comm.ledger.booked_as("evaluation"):
        outputs = as_logits(Spreading(local, comm, buffers, dtype).labels(request.alpha, request.steps))
        seconds = max(comm.allgather_object(time.perf_counter() - started))
        evaluator = Evaluator(Classification(), local, "accuracy", comm)
        found = evaluator.report(outputs, meta.type_names.get("classes", ()))
    if request.output:
        rows = {evaluator.task.rows: evaluator.task.predict(outputs)}
        if request.probabilities:
            rows["probability"] = outputs.softmax(1)
        origin = {"graph_uuid": meta.uuid, "alpha": request.alpha, "steps": request.steps}
        write_rows(request.output, rows, local, Source(config.data.graph, meta, evaluator.task, origin), comm)
    if comm.rank == 0:
        shown = [("label propagation", f"alpha {request.alpha:g}, {request.steps} steps")]
        shown += [(f"{split} accuracy", shown_number(found[split])) for split in ("val", "test")]
        del found["metrics"]["train"]  # whose labels are an input
        shown += rows_of_metrics(found)
        shown += [("ranks × threads", f"{comm.size} × {session.threads}"), ("seconds", f"{seconds:.3f}")]
        tell(tabulate(shown, tablefmt="rounded_outline", disable_numparse=True))
        if request.output:
            tell(f"classes in {request.output}")
    return 0
