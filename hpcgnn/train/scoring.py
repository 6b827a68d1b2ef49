"""`hpcgnn evaluate`: the metrics, and if asked the predictions, of a trained run, on any number of ranks.

The checkpoint is enough to know a model, and the exact streamed forward pass gives the same numbers on every layout, so
a run of a thousand ranks can be evaluated on one node, if its memory holds a rank's share.
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.session import Session
from hpcgnn.config import Config, read_toml
from hpcgnn.errors import CheckpointError, RunDirError
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graph.opening import open_graph
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.nn.plugin import COPY
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.records import shown_number, to_json, write_atomically
from hpcgnn.train.agreement import agree, facts_of_graph, facts_of_process
from hpcgnn.train.checkpoint import check_identity, newest_readable, read_checkpoint, restore
from hpcgnn.train.choosing_maps import choose_map
from hpcgnn.train.job import make_buffers, model_spec, resolve, run_identity
from hpcgnn.train.loop import Trainer
from hpcgnn.train.matmul import set_matmul
from hpcgnn.train.predictions import check_place, write_predictions
from hpcgnn.train.rundir import start_logging
from hpcgnn.train.summary import versions
from hpcgnn.train.toy import toy_step

log = logging.getLogger("hpcgnn")
# What belongs to the machine that trained, not to the model.
_NOT_KEPT = ("threads", "partition", "assignment", "drop_ranks")


def options_of_run(run_dir: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flat options of a finished or stopped run, with those `given` for its evaluation. Raises RunDirError."""
    path = Path(run_dir) / "config.toml"
    if not path.is_file():
        raise RunDirError(f"{run_dir} is not the directory of a run: expected {path}, which `hpcgnn train` writes")
    options = {key: value for key, value in read_toml(path).items() if key not in _NOT_KEPT}
    if options.get("plugin") and path.with_name(COPY).exists():  # runs of earlier versions have no copy
        options["plugin"] = str(path.with_name(COPY))  # the directory may have been moved
    return {**options, **given, "run_dir": str(run_dir)}


def evaluate(
    config: Config, session: Session, weights: str = "best", predictions: str = "", force: bool = False
) -> int:
    """Evaluate the newest checkpoint of config.run.run_dir. Collective. weights: 'best' (of validation) or 'last'.

    Writes `evaluation.json` into the run directory, and the predictions file if one is named (force: in place of an
    existing one). Returns 0.
    """
    comm = session.comm
    start_logging(comm.rank)
    agree(comm, facts_of_process(config))
    torch.set_num_threads(session.threads)
    set_matmul(config.run.matmul)
    with comm.together("looking where predictions go"):
        if predictions and comm.rank == 0:
            check_place(predictions, force)
    with open_graph(config.data.graph, comm) as file:
        map_name, cluster_to_rank = choose_map(file, config, comm)
        spec = model_spec(file.meta, config)
        agree(comm, facts_of_graph(file.meta, map_name, cluster_to_rank, spec))
        config = resolve(config, spec, file.meta, map_name, session)
        with comm.together("trying the model on a toy graph"):
            row_bytes = toy_step(spec, config, file.meta.multi_label)
        buffers = make_buffers(row_bytes, config)
        path, progress, state, epoch = _weights(config, spec, file.meta, comm, weights)
        cap, edges = max(1, buffers.cap(buffers.widest_row)), MODELS[spec.model].edges(spec)
        local = load_local_graph(file, cluster_to_rank, comm, cap, config.data.self_loops, spec.dtype, edges)
    trainer = Trainer(local, spec, config, comm, buffers)
    local = trainer.local  # the one before it goes
    with comm.together("loading the weights"):
        if progress.get("stage", 0) < trainer.schedule.sync.first_whole:
            raise CheckpointError(
                f"{path} is of a run that has trained {progress.get('stage', 0)} layers and expects "
                f"{trainer.schedule.sync.first_whole + 1}, so that its model does not predict yet; continue it with "
                "--resume"
            )
        restore(trainer.model, trainer.optimizer, state, {})
    trainer.model.eval()
    started = time.perf_counter()
    with torch.no_grad(), comm.ledger.booked_as("evaluation"):
        logits = trainer.model(trainer.graph)
        metrics = trainer.evaluator.scores(logits)
    seconds = max(comm.allgather_object(time.perf_counter() - started))
    if predictions:
        chosen = logits > 0 if local.multi_label else logits.argmax(1, keepdim=True)
        origin = {
            "graph_uuid": file.meta.uuid,
            "run": str(config.run.run_dir),
            "checkpoint": path.name,
            "weights": weights,
        }
        write_predictions(predictions, chosen.to(torch.int32), local, comm, origin)
    sent = comm.allgather_object(sum(entry["bytes_sent"] for entry in comm.ledger.total().values()))
    resident = comm.allgather_object(resident_bytes())
    record = {
        **{"checkpoint": path.name, "weights": weights, "epoch": epoch, "metric": trainer.evaluator.name, **metrics},
        **{"ranks": comm.size, "threads_per_rank": session.threads, "seconds": seconds, "bytes_sent": sum(sent)},
        **{"resident_bytes": {"max": max(resident), "sum": sum(resident)}, "partition": map_name},
        **{"graph": str(config.data.graph), "graph_uuid": file.meta.uuid, "predictions": predictions or None},
        **{"epochs_done": progress["epoch"], "versions": versions()},
    }
    with comm.together("writing the results"):
        if comm.rank == 0:
            write_atomically(Path(config.run.run_dir) / "evaluation.json", to_json(record, indent=1))
            _show(record, spec, config.run.run_dir)
    return 0


def _weights(
    config: Config, spec: ModelSpec, meta: GraphMeta, comm: Communicator, weights: str
) -> tuple[Path, dict[str, Any], dict[str, torch.Tensor], int]:
    """(checkpoint path, its progress, model state, epoch that the weights are of). Collective."""
    path = None
    with comm.together("looking for a checkpoint"):
        if comm.rank == 0:
            path = find_checkpoint(config.run.run_dir)
    path = comm.broadcast_object(path)
    with comm.together("reading the checkpoint"):
        progress, last, best, _ = read_checkpoint(path)
        check_identity(path, progress["identity"], run_identity(config, spec, meta))
        if weights == "best" and best is None:
            raise CheckpointError(
                f"{path} has no best weights: its run never evaluated, or its graph has no validation nodes; use "
                "--weights last"
            )
    if weights == "best":
        assert best is not None
        return path, progress, best, progress["best"]["epoch"]
    return path, progress, last, progress["epoch"]


def find_checkpoint(run_dir: str | Path) -> Path:
    """The newest checkpoint of a run that reads completely. Raises CheckpointError if there is none."""
    path = newest_readable(run_dir, log.warning)
    if path is None:
        raise CheckpointError(f"{run_dir} has no checkpoint yet; expected one in {Path(run_dir) / 'checkpoints'}")
    return path


def _show(record: dict[str, Any], spec: ModelSpec, run_dir: str | Path) -> None:
    rows = [("model", spec.model), ("weights", f"{record['weights']}, of epoch {record['epoch']}")]
    rows += [(f"{split} {record['metric']}", shown_number(record[split])) for split in ("train", "val", "test")]
    rows += [("ranks × threads", f"{record['ranks']} × {record['threads_per_rank']}")]
    rows += [("seconds", f"{record['seconds']:.3f}")]
    print(tabulate(rows, tablefmt="rounded_outline", disable_numparse=True))
    also = f"; predictions in {record['predictions']}" if record["predictions"] else ""
    print(f"results in {run_dir}/evaluation.json{also}", flush=True)
