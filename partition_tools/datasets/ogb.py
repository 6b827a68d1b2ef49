"""The node property prediction sets of OGB (Hu et al., NeurIPS 2020), as its library or a browser leaves them."""

from pathlib import Path

from partition_tools.datasets.dataset import Dataset, Reader
from partition_tools.external.scratch import Scratch
from partition_tools.progress import Reporter
from partition_tools.raw import RawGraph
from partition_tools.sources import ogb
from partition_tools.tables import TableOptions

PAGE = "https://ogb.stanford.edu/docs/nodeprop/"
_TEXT = ("raw/edge.csv.gz", "raw/num-node-list.csv.gz")
_LABELLED = ("raw/node-feat.csv.gz", "raw/node-label.csv.gz")
_IDS = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")


def _places(name: str, archive: str) -> tuple[str, ...]:
    """Folders of a set: of the library under its root, of the archive unpacked by hand, or the folder itself."""
    folder = name.replace("-", "_")
    return folder, f"dataset/{folder}", archive, "."


def _reader(split: str) -> Reader:
    def read(folder: Path, tables: TableOptions, reporter: Reporter, scratch: Scratch) -> RawGraph:
        return ogb.read_folder(folder, reporter, scratch, split)

    return read


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
)
