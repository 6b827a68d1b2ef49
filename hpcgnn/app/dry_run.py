"""`--dry-run RANKS`: the checks of a job, made on the login node in seconds instead of after waiting in the queue.

One process checks the options, the graph file and its map for these numbers of ranks, and that the run directory can be
written and has space. It starts no MPI and leaves no files behind.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcgnn.app.bring_up import make_buffers
from hpcgnn.app.choosing_maps import find_map
from hpcgnn.app.loaded_model import find_checkpoint
from hpcgnn.app.predict import PredictRequest
from hpcgnn.app.remarks import remarks_on_graph
from hpcgnn.config import Config
from hpcgnn.engine.probe import probe_step
from hpcgnn.engine.rundir import RunDir
from hpcgnn.graph.load import check_trainable
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.output_files import check_outputs
from hpcgnn.outputs.files import files_read
from hpcgnn.plan.run_plan import plan
from hpcgnn.plugins.registry import make_plugins
from hpcgnn.tasks.registry import task_traits
from hpcgnn.terminal import tell

# A log, some records and the first checkpoint of a small model.
_SPACE = 4 << 20


def check_training(config: Config, rank_counts: Iterable[int], remarks: Iterable[str] = ()) -> None:
    """Raise an HpcgnnError if `hpcgnn train` could not start with this configuration.

    Args:
        config: the configuration.
        rank_counts: numbers of ranks to check.
        remarks: lines to show with the findings, if it could.
    """
    ignored = _check_graph(config, rank_counts)
    path = Path(config.run.run_dir or f"runs/dry-run-{os.getpid()}")
    with _removed_again(path), contextlib.closing(RunDir(path, config.run.resume)) as run_dir:
        run_dir.write(".space", bytes(_SPACE))
        (path / ".space").unlink()
    for remark in (*remarks, *ignored):
        tell(f"hpcgnn: warning: {remark}", sys.stderr)


def check_use(config: Config, rank_counts: Iterable[int], request: PredictRequest | None = None) -> None:
    """Raise an HpcgnnError if `hpcgnn evaluate`, or `predict` with a request, could not run on these numbers of
    ranks.
    """
    find_checkpoint(config.run.run_dir)
    if request is None or not request.other_graph:
        _check_graph(config, rank_counts, learns=False)
    else:  # which needs no labels
        with GraphFile(config.data.graph) as file:
            check_trainable(file, labelled=False)
            for ranks in rank_counts:
                find_map(file, config, ranks)
    if request is not None:
        check_outputs({"--output": request.output}, [*files_read(config), *request.inputs], request.force)


def _check_graph(config: Config, rank_counts: Iterable[int], learns: bool = True) -> list[str]:
    """Check the graph and its maps, and return lines about ignored options. learns: whether the run trains a model."""
    with GraphFile(config.data.graph) as file:
        check_trainable(file, labelled=task_traits(config.task.task).labels)
        for ranks in rank_counts:
            find_map(file, config, ranks)
        decided = plan(config, file.meta, learns)
        make_buffers(probe_step(decided, make_plugins), decided.config)
        return remarks_on_graph(decided, file)


@contextlib.contextmanager
def _removed_again(path: Path) -> Iterator[None]:
    """Remove the folders that the body made on the way to `path`, as far as they are empty."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        yield
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
