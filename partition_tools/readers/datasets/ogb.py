"""The sets of OGB for node and for link property prediction (Hu et al., NeurIPS 2020), as its library or a browser
leaves them. Edges of the latter are counted without the held-out ones.
"""

from collections.abc import Callable
from pathlib import Path

from partition_tools.graph.raw import RawGraph
from partition_tools.readers.datasets.dataset import Dataset
from partition_tools.readers.formats import ogb
from partition_tools.workspace.scratch import Scratch

PAGE = "https://ogb.stanford.edu/docs/nodeprop/"
LINK_PAGE = "https://ogb.stanford.edu/docs/linkprop/"
_TEXT = ("raw/edge.csv.gz", "raw/num-node-list.csv.gz")
_LABELLED = ("raw/node-feat.csv.gz", "raw/node-label.csv.gz")
_HELD = ("valid.pt", "test.pt")
_IDS = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")


def _places(name: str, archive: str) -> tuple[str, ...]:
    """Folders of a set: of the library under its root, of the archive unpacked by hand, or the folder itself."""
    folder = name.replace("-", "_")
    return folder, f"dataset/{folder}", archive, "."


def _reader(split: str) -> Callable[[Path, Scratch], RawGraph]:
    return lambda folder, scratch: ogb.read_folder(folder, scratch, split)


def _links(
    name: str,
    nodes: int,
    edges: int,
    archive: str,
    split: str,
    features: bool = True,
    undirected: bool = False,
    usual: str = "",
) -> Dataset:
    """A set of link prediction, whose held-out edges lie in split/<split>."""
    files = (*_TEXT, *(("raw/node-feat.csv.gz",) if features else ()), *(f"split/{split}/{file}" for file in _HELD))
    return Dataset(
        *(name, nodes, edges, LINK_PAGE, _places(name, archive), files, _reader(split)),
        split=f"split/{split}, of edges",
        undirected=undirected,
        usual=usual,
    )


DATASETS = (
    Dataset(
        "ogbn-arxiv",
        169_343,
        1_166_243,
        PAGE,
        _places("ogbn-arxiv", "arxiv"),
        (*_TEXT, *_LABELLED, *(f"split/time/{name}" for name in _IDS)),
        _reader("time"),
        split="split/time",
        usual="--undirected",
        classes=40,
    ),
    Dataset(
        "ogbn-products",
        2_449_029,
        61_859_140,
        PAGE,
        _places("ogbn-products", "products"),
        (*_TEXT, *_LABELLED, *(f"split/sales_ranking/{name}" for name in _IDS)),
        _reader("sales_ranking"),
        split="split/sales_ranking",
        undirected=True,
        classes=47,
    ),
    Dataset(
        "ogbn-proteins",
        132_534,
        39_561_252,
        PAGE,
        _places("ogbn-proteins", "proteins"),
        (*_TEXT, "raw/edge-feat.csv.gz", "raw/node-label.csv.gz", *(f"split/species/{name}" for name in _IDS)),
        _reader("species"),
        split="split/species",
        undirected=True,
    ),
    Dataset(
        "ogbn-mag",
        1_939_743,
        21_111_007,
        PAGE,
        _places("ogbn-mag", "mag"),
        (
            "raw/num-node-dict.csv.gz",
            "raw/triplet-type-list.csv.gz",
            "raw/node-feat/paper/node-feat.csv.gz",
            "raw/node-label/paper/node-label.csv.gz",
            *(f"split/time/paper/{name}" for name in _IDS),
        ),
        _reader("time"),
        split="split/time",
        usual="--add-reverse",
        classes=349,
    ),
    Dataset(
        "ogbn-papers100M",
        111_059_956,
        1_615_685_872,
        PAGE,
        _places("ogbn-papers100M", "papers100M-bin"),
        ("raw/data.npz", "raw/node-label.npz", *(f"split/time/{name}" for name in _IDS)),
        _reader("time"),
        split="split/time",
        usual="--undirected",
        classes=172,
    ),
    _links("ogbl-collab", 235_868, 1_179_052, "collab", "time", undirected=True),
    _links("ogbl-ppa", 576_289, 21_231_931, "ppassoc", "throughput", undirected=True),
    _links("ogbl-ddi", 4_267, 1_067_911, "ddi", "target", undirected=True, features=False),
    _links("ogbl-citation2", 2_927_963, 30_387_995, "citation-v2", "time", usual="--undirected"),
)
