"""Folders of nekRS-ML's plugin `gnn`: raw numbers of each rank of the solver, in files NAME_rank_R_size_P.bin.

Points stand once for each element. The points of a global id are one node. A point with the id 0 lies inside of an
element, and is a node by itself. A node belongs to the lowest rank that has a point of it, as `RawGraph.parts` says,
and has the values of the first of them. Halo tables and masks follow from the ids, and are not read.

Fields are in files fld_NAME_time_T of the folder, or the plugin `trajGen` has written them beside it:

    gnn_outputs_poly_7/                                         the mesh
    traj_poly_7/tinit_T_dtfactor_D/data_rank_R_size_P/          a trajectory
        NAME_step_S.bin                                         a field; the number of the step is its time
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.extras.meshes.arrival import MeshOptions, TimeByTime, mesh_edges, series_of_source
from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.schema import RowReader
from partition_tools.graph.raw import RawGraph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

NAME = "nekrs"
OPTIONS = MeshOptions
_FILE = re.compile(r"(.+)_rank_(\d+)_size_([1-9]\d*)\.bin")
_FIELD = re.compile(r"fld_(.+)_time_(.+)")
_TRAJECTORY, _STEP = re.compile(r"tinit_(.+)_dtfactor_(\d+)"), re.compile(r"(.+)_step_(\d+)\.bin")
#: A snapshot: the number of its trajectory, and its time there.
_Snapshot = tuple[int, float]
#: What makes a graph: types of numbers, and numbers of a row.
_IDS, _POSITIONS, _EDGES = "global_ids", "pos_node", "edge_index"
_ROWS = {_IDS: (np.int64, 1), _POSITIONS: (np.float64, 3), _EDGES: (np.int32, 2)}
#: Rows of a field end at a multiple of this, where nekRS aligns its arrays to 256 bytes.
_ALIGNED = 32
#: Points of a node are apart by at most this share of the mesh: positions may come from numbers in single precision.
_ROUNDING = 1e-6


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_dir() and next(path.glob(f"{_IDS}_rank_*_size_*.bin"), None) is not None


def read(path: Path, options: MeshOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of the files of all ranks. Raises FormatError, GraphError.

    Memory: 60 bytes per point for a while, then 8 per point and 40 per node, and one time of one field.
    """
    points = _Points(path, _files(path))
    position = points.positions(scratch)
    src, dst = points.edges(scratch)
    owned = np.bincount(points.owner, minlength=len(points.ranks))
    if not owned.all():
        scratch.reporter.warn(
            f"{path}: lower ranks have all points of rank {np.argmin(owned)}; the partition is not kept as a map"
        )
    return RawGraph(
        src,
        dst,
        len(points.ids),
        ids=points.ids,
        parts=points.owner if owned.all() else None,
        source=path.resolve().name,
        position=position,
        snapshots=points.fields(scratch.reporter),
    )


def _files(folder: Path) -> dict[str, list[Path]]:
    """{NAME: its file of each rank}. Raises FormatError for files that are missing, or of several numbers of ranks."""
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    sizes = set()
    for file in folder.iterdir():
        if part := _FILE.fullmatch(file.name):
            found[part[1]][int(part[2])] = file
            sizes.add(int(part[3]))
    if len(sizes) != 1:
        raise FormatError(
            f"{folder} has files of {' and '.join(map(str, sorted(sizes))) or 'no'} ranks, expected those of one "
            f"number of ranks, such as {_IDS}_rank_0_size_4.bin; give each number of ranks a folder"
        )
    (count,) = sizes
    wanted = [*_ROWS, *filter(_FIELD.fullmatch, found)]
    for name in wanted:
        for rank in range(count):
            if rank not in found[name]:
                raise FormatError(
                    f"{folder} has no {name}_rank_{rank}_size_{count}.bin, expected it of each of {count} ranks; copy "
                    "the files of all ranks into the folder"
                )
    return {name: [found[name][rank] for rank in range(count)] for name in wanted}


def _trajectories(folder: Path, ranks: int) -> dict[str, dict[_Snapshot, list[Path]]]:
    """{field: {snapshot: its file of each rank}} of the trajectories beside the folder of a mesh, or in it. Raises
    FormatError for files that a rank does not have.
    """
    place = folder.resolve()
    roots = {place, place.with_name(place.name.replace("gnn_outputs", "traj"))}
    there = ((_TRAJECTORY.fullmatch(each.name), each) for root in roots if root.is_dir() for each in root.iterdir())
    begins = sorted((_number(part[1]), int(part[2]), each) for part, each in there if part)
    found: dict[str, dict[_Snapshot, list[Path]]] = defaultdict(dict)
    for number, (_, _, trajectory) in enumerate(begins):
        parts = [trajectory / f"data_rank_{rank}_size_{ranks}" for rank in range(ranks)]
        names = {each.name for part in parts if part.is_dir() for each in part.iterdir()}
        for name in sorted(names):
            if step := _STEP.fullmatch(name):
                if missing := [part for part in parts if not (part / name).is_file()]:
                    raise FormatError(
                        f"{missing[0]} has no {name}, expected it of each of {ranks} ranks; copy the folders of all "
                        "ranks, or take this step away"
                    )
                found[step[1]][number, float(step[2])] = [part / name for part in parts]
        if not names:
            raise FormatError(
                f"{trajectory} has no files of {ranks} ranks such as {parts[0].name}/u_step_0.bin, expected those of "
                "the ranks of the mesh; copy them, or take the folder away"
            )
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.inf


def _numbers(file: Path, name: str, count: int | None = None) -> np.ndarray:
    """Rows of a file of the graph, mapped. count: of the rows, where it is known."""
    kind, columns = _ROWS[name]
    size, row = file.stat().st_size, columns * np.dtype(kind).itemsize
    if size % row or count not in (None, size // row):
        expected = f"a multiple of {row}" if count is None else f"{count * row}, for {count} points"
        raise FormatError(
            f"{file} has {size} bytes, expected {expected} ({columns} {np.dtype(kind)} each); copy it again"
        )
    return np.memmap(file, kind, "r", shape=(size // row, columns)) if size else np.zeros((0, columns), kind)


class _Points:
    """The points of all ranks, one rank after another, and the nodes that they are.

    Attributes:
        ranks: (first point, last point + 1) of each rank.
        ids: int64 (n,), ascending: the global id of each node. Points inside of elements have those after the largest.
        node: int64 (points,), the node of each point.
        first: int64 (n,), the first point of each node.
        owner: int64 (n,), the rank of that.
    """

    def __init__(self, folder: Path, files: Mapping[str, list[Path]]) -> None:
        self.folder, self.files = folder, files
        ids = [_numbers(file, _IDS)[:, 0] for file in files[_IDS]]
        stops = np.cumsum([len(each) for each in ids])
        self.ranks = list(zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True))
        every = np.concatenate(ids)
        inside = np.flatnonzero(every == 0)
        if len(inside) > 1:  # else 0 is the first id of a numbering from 0
            every[inside] = every.max() + 1 + np.arange(len(inside))
        self.ids, self.first, self.node = np.unique(every, return_index=True, return_inverse=True)
        self.owner = np.searchsorted(stops, self.first, side="right")

    def positions(self, scratch: Scratch) -> np.ndarray:
        """float64 (n, 3): those of the first points, and at the ends of a periodic axis the lower one."""
        position = np.empty((len(self.ids), 3))
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for rank, (start, stop) in enumerate(self.ranks):
            found = self._of_rank(rank)
            if len(wrong := np.flatnonzero(~np.isfinite(found).all(axis=1))):
                raise GraphError(
                    f"{self.files[_POSITIONS][rank]}: point {wrong[0]} is at {_shown(found[wrong[0]])}, expected "
                    "numbers; write the mesh again"
                )
            mine = self.owner == rank
            position[mine] = found[self.first[mine] - start]
            if stop > start:
                low, high = np.minimum(low, found.min(axis=0)), np.maximum(high, found.max(axis=0))
        extent = high - low
        periodic = np.zeros(3, bool)
        for rank, (start, stop) in enumerate(self.ranks):
            found, node = self._of_rank(rank), self.node[start:stop]
            apart = np.abs(found - position[node])
            away = apart > _ROUNDING * extent.max()
            over = away & (np.abs(apart - extent) <= _ROUNDING * extent.max())
            if len(wrong := np.flatnonzero((away & ~over).any(axis=1))):
                raise self._two_positions(start + wrong[0], rank, found[wrong[0]], position[node[wrong[0]]])
            rows = np.flatnonzero(over.any(axis=1))
            np.minimum.at(position, node[rows], np.where(over, found, np.inf)[rows])
            periodic |= over.any(axis=0)
        if periodic.any():
            axes = ", ".join("xyz"[axis] for axis in np.flatnonzero(periodic))
            scratch.reporter.warn(
                f"{self.folder}: the mesh is periodic along {axes}. A node at both ends has the position of the lower "
                "one, so an edge over the ends is nearly as long as the mesh"
            )
        return position

    def _of_rank(self, rank: int) -> np.ndarray:
        start, stop = self.ranks[rank]
        return _numbers(self.files[_POSITIONS][rank], _POSITIONS, stop - start)

    def _two_positions(self, point: int, rank: int, found: np.ndarray, other: np.ndarray) -> GraphError:
        node = self.node[point]
        first, owner = int(self.first[node]), int(self.owner[node])
        return GraphError(
            f"{self.files[_IDS][rank]}: global id {self.ids[node]} is at {_shown(found)} (point "
            f"{point - self.ranks[rank][0]}), and in {self.files[_IDS][owner].name} at {_shown(other)} (point "
            f"{first - self.ranks[owner][0]}); expected one position, or both ends of a periodic mesh; the files are "
            "of different runs, or damaged: write the folder again"
        )

    def edges(self, scratch: Scratch) -> tuple[RowReader, RowReader]:
        """(sources, destinations): each edge of any rank once in each direction."""
        parts = [_numbers(file, _EDGES) for file in self.files[_EDGES]]
        begins = np.cumsum([0, *map(len, parts)])

        def pairs(start: int, stop: int) -> np.ndarray:
            held = [rank for rank in range(len(parts)) if begins[rank] < stop and start < begins[rank + 1]]
            slices = ((rank, max(start - begins[rank], 0), stop - begins[rank]) for rank in held)
            return np.concatenate([self._nodes_of(rank, parts[rank], *each) for rank, *each in slices])

        return mesh_edges(len(self.ids), pairs, int(begins[-1]), scratch)

    def _nodes_of(self, rank: int, edges: np.ndarray, start: int, stop: int) -> np.ndarray:
        """int64 (m, 2): the nodes at the ends of some edges of a rank."""
        (first, last), ends = self.ranks[rank], np.asarray(edges[start:stop])
        if len(wrong := np.flatnonzero(((ends < 0) | (ends >= last - first)).any(axis=1))):
            raise GraphError(
                f"{self.files[_EDGES][rank]}: edge {start + wrong[0]} is from point {ends[wrong[0]][0]} to point "
                f"{ends[wrong[0]][1]}, and the rank has the points 0..{last - first - 1}; the files are of different "
                "runs, or damaged: write the folder again"
            )
        return self.node[first:last][ends]

    def fields(self, reporter: Reporter) -> FieldSeries | None:
        """All fields, in the order of their trajectories and times."""
        files = _trajectories(self.folder, len(self.ranks))
        of_mesh = self._fields_of_mesh()
        if files and of_mesh:
            reporter.warn(f"{self.folder}: there are trajectories beside it; files fld_* are left out")
        files = files or of_mesh
        every = sorted({snapshot for of_field in files.values() for snapshot in of_field})
        for field, of_field in files.items():
            if missing := [each for each in every if each not in of_field]:
                raise FormatError(
                    f"{self.folder} has field {field} at {len(of_field)} times and not at {missing[0][1]:g} "
                    f"(trajectory {missing[0][0]}), expected all {len(every)} times of the fields; add its files of "
                    "this time, or take those of the others away"
                )
        fields = {field: self._field(field, files[field], every) for field in sorted(files)}
        return series_of_source(self.folder, fields, [time for _, time in every], [number for number, _ in every])

    def _fields_of_mesh(self) -> dict[str, dict[_Snapshot, list[Path]]]:
        """{field: {snapshot: its file of each rank}} in the folder of the mesh."""
        found: dict[str, dict[_Snapshot, list[Path]]] = defaultdict(dict)
        names: dict[tuple[str, float], str] = {}
        for name, files in self.files.items():
            if part := _FIELD.fullmatch(name):
                key = part[1], self._time(name, part[2])
                if key in names:
                    raise FormatError(
                        f"{self.folder} has {names[key]} and {name}, expected each time once; take one away"
                    )
                names[key], found[key[0]][0, key[1]] = name, files
        return found

    def _time(self, name: str, text: str) -> float:
        try:
            time = float(text)
        except ValueError:
            time = np.nan
        if not np.isfinite(time):
            raise FormatError(
                f"{self.files[name][0]}: its name has the time {text!r}, expected a number, such as in "
                "fld_u_time_0.5_rank_0_size_4.bin; rename the files"
            )
        return time

    def _field(self, field: str, files: Mapping[_Snapshot, list[Path]], every: list[_Snapshot]) -> TimeByTime:
        parts = [files[snapshot] for snapshot in every]
        widths = {self._columns(file, rank): file for of_ranks in parts for rank, file in enumerate(of_ranks)}
        if len(widths) > 1:
            (width, file), (other, differs), *_ = widths.items()
            raise FormatError(
                f"{differs} has {other} numbers for each point and {file.name} {width}, expected one width of a field; "
                "copy the files again, or take this field away"
            )

        def where(place: int, node: int) -> str:
            rank = int(self.owner[node])
            return (
                f"{parts[place][rank]}: field {field} at snapshot {place} (time {every[place][1]:g}), point "
                f"{self.first[node] - self.ranks[rank][0]} (global id {self.ids[node]}),"
            )

        shape = len(every), len(self.ids), next(iter(widths))
        return TimeByTime(shape, np.float64, lambda place: self._values(parts[place], shape[2]), where)

    def _columns(self, file: Path, rank: int) -> int:
        """Numbers for each point. Rows of padding may follow the points."""
        start, stop = self.ranks[rank]
        size = file.stat().st_size
        for rows in (stop - start, -((start - stop) // _ALIGNED) * _ALIGNED):
            if rows and size and size % (8 * rows) == 0:
                return size // (8 * rows)
        raise FormatError(
            f"{file} has {size} bytes, expected a multiple of {8 * (stop - start)}: float64 for each of {stop - start} "
            "points; copy it again, or take this field away"
        )

    def _values(self, files: list[Path], columns: int) -> np.ndarray:
        """float64 (n, columns): a field at a time. files: of each rank."""
        values = np.empty((len(self.ids), columns))
        for rank, file in enumerate(files):
            mine = self.owner == rank
            found = np.fromfile(file, np.float64).reshape(-1, columns)
            values[mine] = found[self.first[mine] - self.ranks[rank][0]]
        return values


def _shown(position: np.ndarray) -> str:
    return f"({', '.join(f'{each:.9g}' for each in position)})"
