"""`hpcgnn evaluate`: the metrics of a trained run, on any number of ranks."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from hpcgnn.app.corrections import CORRECTIONS, Correction
from hpcgnn.app.loaded_model import load_trained
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.engine.summary import rows_of_metrics, show_classes, versions
from hpcgnn.memory.resident import resident_bytes
from hpcgnn.records import shown_number, to_json, write_atomically
from hpcgnn.report.read import named
from hpcgnn.terminal import tell

log = logging.getLogger("hpcgnn")


def evaluate(config: Config, session: Session, weights: str = "best", corrections: Sequence[Correction] = ()) -> int:
    """Evaluate the newest checkpoint of config.run.run_dir, and write `evaluation.json` into this directory.
    Collective. weights: 'best' (of validation) or 'last'. Returns the exit code 0.
    """
    comm = session.comm
    start_logging(comm.rank)
    trained = load_trained(config, session, weights, corrections=corrections)
    logits, seconds = trained.logits()
    evaluator, started = trained.trainer.evaluator, time.perf_counter()
    with comm.ledger.booked_as("evaluation"):
        metrics = evaluator.report(logits, trained.meta.type_names.get("classes", ()))
    if evaluator.task.traits.reads_on:  # the report makes the outputs
        seconds = max(comm.allgather_object(time.perf_counter() - started))
    sent = comm.allgather_object(sum(entry["bytes_sent"] for entry in comm.ledger.total().values()))
    resident = comm.allgather_object(resident_bytes())
    record = {
        **{"checkpoint": trained.checkpoint, "weights": weights, "epoch": trained.epoch, "metric": evaluator.name},
        **{**metrics, "task": evaluator.task.name, "better": evaluator.metric.direction},
        **{"ranks": comm.size, "threads_per_rank": session.threads, "seconds": seconds},
        **{"bytes_sent": sum(sent), "resident_bytes": {"max": max(resident), "sum": sum(resident)}},
        **{"partition": trained.map_name, "graph": str(config.data.graph), "graph_uuid": trained.meta.uuid},
        **{"epochs_done": trained.epochs_done, "versions": versions()},
        **dict.fromkeys(CORRECTIONS),
        **{each.name: each.record() for each in corrections},
    }
    with comm.together("writing the results"):
        if comm.rank == 0:
            _show(record, config.model.model)
            written = Path(config.run.run_dir) / "evaluation.json"
            write_atomically(
                written, to_json(record, indent=1), "the metrics are printed above; for the file copy the run elsewhere"
            )
            tell(f"results in {written}")
    return 0


def _show(record: dict[str, Any], model: str) -> None:
    rows = [("model", model), ("weights", f"{record['weights']}, of epoch {record['epoch']}")]
    for name in CORRECTIONS:
        if record[name]:
            rows += [(name.replace("_", " "), ", ".join(f"{k} {v}" for k, v in record[name].items()))]
    rows += [(f"{split} {named(record)}", shown_number(record[split])) for split in ("train", "val", "test")]
    rows += rows_of_metrics(record)
    rows += [("ranks × threads", f"{record['ranks']} × {record['threads_per_rank']}")]
    rows += [("seconds", f"{record['seconds']:.3f}")]
    tell(tabulate(rows, tablefmt="rounded_outline", disable_numparse=True))
    show_classes(record)
