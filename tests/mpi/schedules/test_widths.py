"""--halo-dtype auto: within its budget after the first epoch, and a pause leaves no seam."""

import json
from types import SimpleNamespace

import pytest

from hpcgnn.app.train import train
from hpcgnn.errors import ConfigError
from hpcgnn.schedules import rounding

from ..narrowing import row_bytes
from ..training import CLASSES, build_trainer, configure, curve, make_graphs

pytestmark = pytest.mark.ranks(2)


def sent(comm):
    """Bytes of rows and gradients that all ranks sent since the last call. Collective."""
    traffic = comm.ledger.take()
    mine = sum(traffic[kind].bytes_sent for kind in ("halo_forward", "halo_backward") if kind in traffic)
    return sum(comm.allgather_object(mine))


@pytest.mark.parametrize("model", [{"model": "sage"}, {"model": "gat", "heads": 2, "hidden": 8}], ids=str)
@pytest.mark.parametrize("halo", ["rows", "auto"])
def test_bytes_keep_to_the_budget(comm, session_path, model, halo, monkeypatch):
    """In several turns; of 3 bits some have 2 and others 4 or 8."""
    monkeypatch.setattr(rounding, "AUTO_BITS", 3.0)
    path = make_graphs(comm, session_path)["undirected"]
    bytes_of = {}
    for dtype in ("int2", "int4", "int8", "auto"):
        trainer = build_trainer(
            comm, configure(path, halo_dtype=dtype, dropout=0.0, halo=halo, **model), "random-clusters", 40
        )
        bytes_of[dtype] = []
        for epoch in range(6):
            comm.ledger.take()
            loss = trainer.step(epoch)
            bytes_of[dtype].append(sent(comm))
        assert loss < 1.7
        assert trainer.buffers.nbytes <= trainer.buffers.limit
    two, four, eight = (bytes_of[name][0] for name in ("int2", "int4", "int8"))
    first, *others = bytes_of["auto"]
    assert first == eight
    if comm.size == 1:
        return
    # Rows of few columns have bits to spare, and int8 has a factor of four bytes as well.
    assert all(two < each <= (two + four) / 2 * 1.01 for each in others)


def test_the_first_epoch_is_int8(comm, session_path):
    path = make_graphs(comm, session_path)["undirected"]
    trainer = build_trainer(comm, configure(path, halo_dtype="auto", hidden=16), "metis")
    comm.ledger.take()
    trainer.step(0)
    rows = sum(comm.allgather_object(trainer.schedule.halo.training.inward.plan.num_boundary))
    assert sent(comm) == 2 * rows * (row_bytes("int8", 16) + row_bytes("int8", CLASSES))


def test_eight_bits_are_int8(comm, session_path, monkeypatch):
    monkeypatch.setattr(rounding, "AUTO_BITS", 8.0)
    path = make_graphs(comm, session_path, nodes=300)["undirected"]
    auto, int8 = (
        curve(comm, configure(path, dropout=0.0, **more), "random-clusters", 40, 6)
        for more in ({"halo_dtype": "auto"}, {"halo_dtype": "int8"})
    )
    assert auto.tolist() == int8.tolist()


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("pause", [1, 3, 4])
def test_a_pause_leaves_no_seam(comm, session_path, shared_path, pause, monkeypatch):
    """Before an epoch in which widths are chosen, too: what was noted for that is saved."""
    monkeypatch.setattr(rounding, "AUTO_BITS", 3.0)
    path = make_graphs(comm, session_path, nodes=300)["undirected"]

    def run(name, **options):
        config = configure(
            path,
            run_dir=str(shared_path / name),
            partition="random-clusters",
            model="sage",
            halo_dtype="auto",
            halo_buffer=0.004,
            **options,
        )
        assert train(config, SimpleNamespace(comm=comm, threads=1)) == 0
        comm.barrier()

    run("whole", epochs=7)
    run("run", epochs=pause)
    run("run", epochs=7, resume=True)
    records = [
        [json.loads(line) for line in (shared_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "run")
    ]
    kinds = ("halo_forward", "halo_backward")
    one, other = (
        [(record["loss"], [record["bytes"].get(kind) for kind in kinds]) for record in each] for each in records
    )
    assert one == other


def test_only_for_exchanges_that_are_alike():
    with pytest.raises(ConfigError, match="--halo-dtype auto is for --schedule sar"):
        configure("g.h5", schedule="bns", boundary_rate=0.5, halo_dtype="auto")
