"""A box of hexahedra of order 1 with a Taylor-Green vortex, in Dist-GNN's files of each rank.

A point stands once for each element. Elements go to ranks in slabs of the slowest axis. Edges run along the axes,
between the places at which points are kept; its own create_halo_info_par.py makes the halo tables.
"""

import numpy as np

CORNERS = 8


def write_box(out, elements, ranks):
    """Write a cube with so many elements on each edge. Returns (its points, its edges both ways)."""
    out.mkdir(parents=True)
    points = elements + 1
    z, y, x = np.meshgrid(*[np.linspace(0, 2 * np.pi, points)] * 3, indexing="ij")
    position = np.stack([x.ravel(), y.ravel(), z.ravel()], 1)
    sine, cosine = np.sin(position), np.cos(position)
    flow = np.stack([sine[:, 0] * cosine[:, 1] * cosine[:, 2], -cosine[:, 0] * sine[:, 1] * cosine[:, 2]], 1)
    flow = np.concatenate([flow, np.zeros((len(flow), 1))], 1)
    twice = np.cos(2 * position)
    pressure = (twice[:, 0] + twice[:, 1]) * (twice[:, 2] + 2) / 16
    corner = np.arange(2)
    within = (corner + points * (corner[:, None] + points * corner[:, None, None])).ravel()
    number = np.arange(CORNERS).reshape(2, 2, 2)
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in zip(*_ends(number), strict=True)])
    step = np.arange(elements)
    first = (step + points * (step[:, None] + points * step[:, None, None])).reshape(elements, -1)
    owner = step * ranks // elements
    ids = [(first[owner == rank].ravel()[:, None] + within).ravel() for rank in range(ranks)]
    held = sum(np.bincount(np.unique(mine), minlength=len(position)) for mine in ids)
    for rank, mine in enumerate(ids):
        once, (_, place, copy) = np.zeros(len(mine), bool), np.unique(mine, return_index=True, return_inverse=True)
        once[place] = True
        local = (edges + CORNERS * np.arange(len(mine) // CORNERS)[:, None, None]).reshape(-1, 2)
        local = np.unique(place[copy.ravel()][local], axis=0)
        of_rank = f"_rank_{rank}_size_{ranks}"
        for name, array, kind in (
            ("pos_node", position[mine], np.float64),
            ("global_ids", mine + 1, np.int64),  # 0 means no id
            ("edge_index", np.concatenate([local, local[:, ::-1]]), np.int32),
            ("local_unique_mask", once & (held[mine] == 1), np.int32),
            ("halo_unique_mask", once & (held[mine] > 1), np.int32),
            ("fld_u_time_0.0", flow[mine], np.float64),
            ("fld_p_time_0.0", pressure[mine], np.float64),
        ):
            array.astype(kind).tofile(out / f"{name}{of_rank}.bin")
        (out / f"Np{of_rank}").write_text(f"{CORNERS}\n")
    return len(position), 6 * elements * points**2


def _ends(number):
    """The two ends of the edges of an element along each axis."""
    return (number[:, :, 0], number[:, 0], number[0]), (number[:, :, 1], number[:, 1], number[1])
