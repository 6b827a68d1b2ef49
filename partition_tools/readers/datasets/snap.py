"""Edge lists of the Stanford collection (Leskovec and Krevl, 2014): text with comments, one edge per line.

Their ids have gaps, so nodes are numbered in the order of their ids. There are no features, labels or splits: they may
come from tables, whose first column holds the ids of the file.
"""

from dataclasses import replace
from pathlib import Path

from partition_tools.graph.raw import RawGraph
from partition_tools.readers.datasets.dataset import Dataset, Reader
from partition_tools.readers.formats import edgelist
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch

SUFFIXES = (".txt.gz", ".txt")
# {name: (file without suffixes, page, nodes, edges, whether one direction of each undirected edge is there)}
_LISTS = {
    "com-amazon": ("com-amazon.ungraph", "com-Amazon", 334_863, 925_872, True),
    "com-dblp": ("com-dblp.ungraph", "com-DBLP", 317_080, 1_049_866, True),
    "com-youtube": ("com-youtube.ungraph", "com-Youtube", 1_134_890, 2_987_624, True),
    "com-livejournal": ("com-lj.ungraph", "com-LiveJournal", 3_997_962, 34_681_189, True),
    "com-orkut": ("com-orkut.ungraph", "com-Orkut", 3_072_441, 117_185_083, True),
    "com-friendster": ("com-friendster.ungraph", "com-Friendster", 65_608_366, 1_806_067_135, True),
    "soc-pokec": ("soc-pokec-relationships", "soc-Pokec", 1_632_803, 30_622_564, False),
    "soc-livejournal1": ("soc-LiveJournal1", "soc-LiveJournal1", 4_847_571, 68_993_773, False),
    "cit-patents": ("cit-Patents", "cit-Patents", 3_774_768, 16_518_948, False),
    "web-google": ("web-Google", "web-Google", 875_713, 5_105_039, False),
    "wiki-talk": ("wiki-Talk", "wiki-Talk", 2_394_385, 5_021_410, False),
    "wiki-topcats": ("wiki-topcats", "wiki-topcats", 1_791_489, 28_511_807, False),
    "roadnet-ca": ("roadNet-CA", "roadNet-CA", 1_965_206, 5_533_214, False),
    "twitter-2010": ("twitter-2010", "twitter-2010", 41_652_230, 1_468_364_884, False),
}


def _reader(stem: str) -> Reader:
    def read(folder: Path, tables: TableOptions, scratch: Scratch) -> RawGraph:
        file = next(folder / f"{stem}{suffix}" for suffix in SUFFIXES if (folder / f"{stem}{suffix}").is_file())
        return edgelist.read(file, replace(tables, relabel=True, heading=False), scratch)

    return read


DATASETS = tuple(
    Dataset(
        name,
        nodes,
        edges,
        f"https://snap.stanford.edu/data/{page}.html",
        (".", name, stem, "snap"),
        ("|".join(f"{stem}{suffix}" for suffix in SUFFIXES),),
        _reader(stem),
        split="none",
        undirected=undirected,
        tables=True,
    )
    for name, (stem, page, nodes, edges, undirected) in _LISTS.items()
)
