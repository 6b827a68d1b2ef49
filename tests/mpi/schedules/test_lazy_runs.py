"""Runs of `lazy` that are stopped anywhere and go on, that end a layer early; and the files that they leave."""

import pytest

from hpcgnn.app.evaluate import evaluate
from hpcgnn.app.resuming import options_of_run
from hpcgnn.config import make_config
from hpcgnn.engine.checkpoint import Checkpoint, checkpoints
from hpcgnn.engine.stopping import EXIT_STOPPED
from hpcgnn.errors import HpcgnnError

from ..runs import check_same, records, session_of, signalled, summary, train_into
from ..training import CHOICES, FEATURES, build_trainer, configure

# Runs are stopped by a signal.
pytestmark = [pytest.mark.ranks(2), pytest.mark.processes]

EPOCHS = 6
RUNS = {
    "gcn": {"model": "gcn", "norm": "batch"},
    "gat": {"model": "gat", "heads": 2, "hidden": 8, "attention_dropout": 0.2},
}


def run(comm, graph, run_dir, code=0, **options):
    usual = {"schedule": "lazy", "epochs": EPOCHS, "eval_every": 2, "lr": 0.05, "intra_node": "messages"}
    return train_into(comm, graph, run_dir, code, **{**usual, **options})


@pytest.fixture(scope="module", params=RUNS)
def whole(comm, graph, session_path, request):
    """(options, directory) of an uninterrupted run."""
    path = session_path / f"lazy-{request.param}"
    run(comm, graph, path, **RUNS[request.param])
    return RUNS[request.param], path


def stopped(comm, graph, run_dir, epoch, **options):
    """Run until after `epoch`, in which one rank is asked to stop."""
    with signalled(comm, epoch):
        run(comm, graph, run_dir, EXIT_STOPPED, **options)


def test_stops_anywhere_change_no_bit(comm, graph, whole, shared_path):
    """In the first layer, at the very end of it, and within the second."""
    options, expected = whole
    for epoch in (2, EPOCHS - 1, EPOCHS + 2):
        stopped(comm, graph, shared_path / "run", epoch, **options, resume=True)
    found = run(comm, graph, shared_path / "run", **options, resume=True)
    check_same(shared_path / "run", expected)
    halo = summary(expected)["partition"]["halo_rows_total"]
    traffic = [{k: v["sum"] for k, v in record["bytes"].items()} for record in found]
    width = options.get("heads", 1) * options.get("hidden", 16)
    again = {3: FEATURES, EPOCHS: FEATURES + width, EPOCHS + 3: FEATURES + width}
    for epoch, sent in enumerate(traffic):
        assert sent.get("resume", 0) == 4 * halo * again.get(epoch, 0), epoch
        assert "halo_backward" not in sent
    assert not any("resume" in record["bytes"] for record in records(expected))


def test_layers_that_are_trained_keep_their_epochs(comm, graph, shared_path):
    """A longer run of a layer that others were trained on would be another run; the last layer can go on."""
    options = {"epochs": 2, "layers": 2, "hidden": 4}
    run(comm, graph, shared_path / "run", **options)
    before = (shared_path / "run" / "config.toml").read_bytes()
    with pytest.raises(HpcgnnError, match=r"expected \[2\] epochs of these, got \[3\]; resume with --layer-epochs"):
        run(comm, graph, shared_path / "run", **{**options, "epochs": 3}, resume=True)
    assert (shared_path / "run" / "config.toml").read_bytes() == before
    options["layer_epochs"] = "2,3"
    run(comm, graph, shared_path / "run", **options, resume=True)
    run(comm, graph, shared_path / "whole", **options)
    check_same(shared_path / "run", shared_path / "whole")


def test_a_layer_ends_when_validation_does_not_rise(comm, graph, shared_path):
    """Each layer after its own best, and it passes on the parameters of that epoch: the head predicts as it did
    then.
    """
    kept = run(comm, graph, shared_path / "run", epochs=30, patience=4, eval_every=1, lr=0.1)
    state = Checkpoint(checkpoints(shared_path / "run")[-1]).model
    trainer = build_trainer(comm, configure(graph, schedule="lazy"), "metis")
    trainer.model.load_state_dict(state)
    for layer in (1, 2, 3):
        own = [record for record in kept if record["layer"] == layer]
        best = max(own, key=lambda record: record["val"])  # the first of equal ones
        assert len(own) == 30 or own[-1]["epoch"] == best["epoch"] + 4
        if layer < 3:
            trainer.begin_stage(layer - 1, 0)
            found = trainer.evaluate()
            assert [found[s] for s in ("train", "val", "test")] == pytest.approx(
                [best[s] for s in ("train", "val", "test")], abs=0.011
            )
    assert len(kept) < 90, "at least one layer ends early, or the test says nothing"


def test_a_model_that_is_not_all_trained_is_not_evaluated(comm, graph, shared_path):
    stopped(comm, graph, shared_path / "run", EPOCHS + 2, **RUNS["gcn"])
    config = make_config(options_of_run(shared_path / "run", {"graph": str(graph), "partition": "metis"}), CHOICES)
    with pytest.raises(HpcgnnError, match="has trained 1 layers and expects 3") as caught:
        evaluate(config, session_of(comm))
    assert caught.value.everywhere
