"""Tables in parts are the table that they are parts of."""

import gzip

import numpy as np
import pandas
import pytest
from partition_helpers import odd_graph

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph

SRC, DST = odd_graph()


def uuid(path, output):
    import_graph(path, output, force=True)
    with GraphFile(output) as file:
        return file.meta.uuid


@pytest.mark.parametrize("kind", ["csv", "headless", "gz", "parquet"])
def test_parts_are_the_table(tmp_path, kind):
    table, folder = pandas.DataFrame({"src": SRC, "dst": DST}), tmp_path / "edges"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    table.to_csv(tmp_path / "edges.csv", index=False)
    for number, rows in enumerate(np.array_split(np.arange(len(SRC)), 3)):
        part, path = table.iloc[rows], folder / f"part-{number:05}-c000.{'parquet' if kind == 'parquet' else 'csv'}"
        if kind == "parquet":
            part.to_parquet(path)
            continue
        text = part.to_csv(index=False, header=kind != "headless")
        path.write_text(text.rstrip() if number == 1 else text)
        if kind == "gz":
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    assert uuid(folder, tmp_path / "parts.h5") == uuid(tmp_path / "edges.csv", tmp_path / "whole.h5")


def test_other_headings_are_refused(tmp_path):
    for number, heading in enumerate(("src,dst", "dst,src")):
        (tmp_path / f"part-{number}.csv").write_text(f"{heading}\n0,1\n")
    with pytest.raises(FormatError, match="part-1.csv begins with b'dst,src'; expected the heading"):
        import_graph(tmp_path, tmp_path.with_suffix(".h5"))
