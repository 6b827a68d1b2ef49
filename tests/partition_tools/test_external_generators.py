"""Generated graphs that do not fit memory, and graphs whose edges several processes draw, are the same files."""

import pytest

from partition_tools.canonical.canonical import ImportOptions
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators import drawing
from partition_tools.generators.spec import Spec
from partition_tools.out_of_core import sorting

GRAPHS = {
    "rmat": ("rmat", Spec(900, 20.0, 3, 4, seed=1)),
    "rmat-directed-typed": ("rmat", Spec(500, 12, 3, 4, seed=2, directed=True, weighted=True, edge_types=3)),
    "planted-typed": ("planted", Spec(700, 9, 3, 4, seed=3, weighted=True, edge_types=4, node_types=2)),
}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(sorting, "MOST_RUN", 1000)
    monkeypatch.setattr(sorting, "MOST_RANGE", 700)
    monkeypatch.setattr(drawing, "BLOCK", 300)  # blocks of draws, which decide what is drawn: of both ways alike


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("self_loops", ["keep", "add"])
def test_the_same_file_as_in_memory(tmp_path, small_pieces, name, self_loops):
    model, spec = GRAPHS[name]
    options = ImportOptions(self_loops=self_loops)
    generate_graph(model, tmp_path / "a.h5", spec, options=options, memory=1 << 30)
    generate_graph(model, tmp_path / "b.h5", spec, options=options, memory=1 << 17)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_a_killed_call_does_not_draw_again(tmp_path, small_pieces, monkeypatch):
    model, spec = GRAPHS["rmat"]
    monkeypatch.setattr("partition_tools.cli.generate_graph.write_with_bar", killed)
    with pytest.raises(KeyboardInterrupt):
        generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 17)
    monkeypatch.undo()
    monkeypatch.setattr(drawing, "BLOCK", 300)
    drawn = []
    monkeypatch.setattr(drawing, "_keys", lambda *given: drawn.append(given))
    generate_graph(model, tmp_path / "b.h5", spec, memory=1 << 17)
    assert not drawn
    monkeypatch.undo()
    monkeypatch.setattr(drawing, "BLOCK", 300)
    generate_graph(model, tmp_path / "a.h5", spec)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def killed(*_, **__):
    raise KeyboardInterrupt
