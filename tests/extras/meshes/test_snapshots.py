"""The reader of snapshots: rows of own nodes in the local order, and damage named by field, time and node."""

import h5py
import numpy as np
import pytest
import torch

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import FormatError, GraphError, HpcgnnError
from hpcgnn.extras.meshes.snapshots import Snapshots
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.hdf5 import write_attributes
from hpcgnn.graphfile.storage import GraphFile, check_structure
from hpcgnn.placement.ownership import Ownership

from . import made


def test_a_rank_reads_its_rows_in_its_order(tmp_path):
    """Every map, chunks of any shape, and either precision, against the arrays in the original order."""
    where, values = made.write(tmp_path / "g.h5", position=np.zeros((60, 3), np.float32))
    for chunk in (None, (1, 7, 2), (3, 60, 2)):
        if chunk:
            with h5py.File(tmp_path / "g.h5", "r+") as file:
                old = file["snapshots/velocity"][:]
                del file["snapshots/velocity"]
                file.create_dataset("snapshots/velocity", data=old, chunks=chunk, compression=1)
        with GraphFile(tmp_path / "g.h5") as file:
            check_structure(file)
            check_rows(file, where, values)


def check_rows(file, where, values):
    found = Snapshots(file)
    assert file.file.attrs["format_version"] == 7 and file.meta.num_dimensions == 3
    assert found.columns == made.COLUMNS and found.times.tolist() == [0, 0.5, 2, 0, 0.5, 2]
    assert found.trajectory.tolist() == [0, 0, 0, 1, 1, 1] and found.split.tolist() == [1, 1, 2, 3, 3, 0]
    for name, cluster_to_rank in where.maps.items():
        owned = Ownership(where.offsets, cluster_to_rank, 3)
        for rank in range(3):
            ranges = owned.ranges(rank)
            ids = file.read("nodes/original_id", ranges)
            number = np.random.default_rng(rank).permutation(len(ids))
            local = np.empty_like(ids)
            local[number] = ids
            for field, kind in (("velocity", torch.float32), ("p.total", torch.float64), ("p.total", torch.float32)):
                rows = found.read(field, 4, ranges, number, kind)
                expected = torch.from_numpy(values[field][4][local]).to(kind)
                assert rows.dtype == kind and torch.equal(rows, expected), (name, rank, field)


def _replaced(name, make):
    def change(file):
        old = file[name][()]
        del file[name]
        if (new := make(old)) is not None:
            file.create_dataset(name, data=new, fletcher32=np.ndim(new) > 0, chunks=np.ndim(new) > 0 or None)

    return change


def _set(name, place, value):
    def change(file):
        file[name][place] = value

    return change


def _attribute(value):
    return lambda file: write_attributes(file, snapshots=value)


VELOCITY, TIME = "snapshots/velocity", "trajectories/time"
DAMAGE = {
    "no field": (_replaced(VELOCITY, lambda old: None), f"{VELOCITY} is missing"),
    "fewer times": (_replaced(VELOCITY, lambda old: old[:5]), "(5, 60, 2)"),
    "fewer nodes": (_replaced(VELOCITY, lambda old: old[:, :5]), "(6, 5, 2)"),
    "more columns": (_replaced(VELOCITY, lambda old: old.repeat(2, 2)), "(6, 60, 4)"),
    "flat": (_replaced(VELOCITY, lambda old: old[:, :, 0]), "(6, 60)"),
    "whole numbers": (_replaced(VELOCITY, lambda old: old.astype(np.int32)), "int32"),
    "times of a scalar": (_replaced(TIME, lambda old: old[0]), "trajectories/"),
    "fewer numbers": (_replaced("trajectories/number", lambda old: old[:3]), "trajectories/number"),
    "split in columns": (_replaced("trajectories/split", lambda old: old[:, None]), "trajectories/split"),
    "misnumbered": (_set("trajectories/number", 1, 3), "snapshot 2 has number 0 of its trajectory"),
    "backwards": (_set(TIME, 5, 0.25), "snapshots 4 and 5 of trajectory 1 have 0.5 and 0.25"),
    "no time": (_set(TIME, 5, np.nan), "the time of snapshot 5 is nan"),
    "no split": (_set("trajectories/split", 3, 9), "snapshot 3 has split 9"),
    "NaN": (_set(VELOCITY, (4, 17, 1), np.nan), "field velocity at snapshot 4 (time 0.5)"),
    "too large": (_set("snapshots/p.total", (4, 17, 0), 1e300), "field p.total at snapshot 4 (time 0.5)"),
    "no object": (_attribute("[1]"), "snapshots must be a JSON object"),
    "no columns": (_attribute('{"velocity": 0}'), "field velocity has 0 columns"),
    "a way out": (_attribute('{"../nodes/split": 1}'), "without a slash"),
}


def read_everything(path, checked):
    with GraphFile(path) as file:
        if checked:
            check_structure(file)
        found = Snapshots(file)
        for field in found.columns:
            found.read(field, 4, [(0, 20), (20, 60)], np.arange(60)[::-1].copy())


def test_damage_is_named(tmp_path):
    """By the check of the structure, and by the reader without it."""
    whole, path = tmp_path / "whole.h5", tmp_path / "g.h5"
    where, _ = made.write(whole)
    for name, (change, expected) in DAMAGE.items():
        path.write_bytes(whole.read_bytes())
        with h5py.File(path, "r+") as file:
            change(file)
        for checked in (True, False):
            with pytest.raises(HpcgnnError) as caught:
                read_everything(path, checked)
            assert expected in str(caught.value) and str(path) in str(caught.value), name
        if name in ("NaN", "too large"):
            assert f"node {where.order[17]} (its original id)" in str(caught.value)


def test_files_without_snapshots_are_as_before(tmp_path):
    """They have no attribute of snapshots and the version that they had; the reader says what lacks."""
    path = tmp_path / "g.h5"
    made.write(path, snapshots=None)
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 2 and not {"snapshots", "num_dimensions"} & set(file.attrs)
    with GraphFile(path) as file, pytest.raises(GraphError, match="no snapshots"):
        Snapshots(file)
    made.write(path, snapshots=None, given=np.zeros(59, np.uint8))
    with GraphFile(path) as file, pytest.raises(FormatError, match="nodes/given has shape"):
        check_structure(file)


def test_positions_are_numbers_to_compute_with(tmp_path):
    """Also where features are held in a narrower type, and whatever type the file has them in."""
    position = np.random.default_rng(4).standard_normal((60, 3))
    where, _ = made.write(tmp_path / "g.h5", ranks=1, position=position, bfloat16=True)
    with GraphFile(tmp_path / "g.h5") as file:
        clusters, comm = np.zeros(file.meta.num_clusters, np.int32), SoloCommunicator()
        local = load_local_graph(file, clusters, comm, 1, "keep", torch.float32, feature_type=torch.bfloat16)
    assert local.features.dtype == torch.bfloat16 and local.position.dtype == torch.float32
    rows = np.argsort(where.order)[local.original_id]  # of the file, as they were written
    assert torch.equal(local.position, torch.from_numpy(position[rows]).float())
