"""Estimates under a limit of memory: a byte less in memory is a byte more on disk, written and read."""

import json

from hpcgnn.__main__ import main
from hpcgnn.config import make_config
from hpcgnn.extras.estimate.forecast import CountedGraph
from hpcgnn.extras.estimate.results import TargetNode
from hpcgnn.extras.offload.estimate import within
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.choices import registry_choices

# A layer of sage keeps its input, of so many numbers of 4 bytes for each node, but for the first.
NODES, HIDDEN, LAYERS = 300, 16, 3
KEPT = 4 * NODES * HIDDEN * (LAYERS - 1)
LARGE = 8 << 30


def test_what_has_no_room_is_written_and_read(graph):
    options = {"graph": str(graph), "model": "sage", "hidden": HIDDEN, "layers": LAYERS}
    config = make_config(options, registry_choices())
    with GraphFile(graph) as file:
        forecast = CountedGraph(file).forecast(config, 1)

    def held(memory):
        return within(forecast, TargetNode(200 << 20, 80 << 20, 1), memory)

    enough = held(LARGE)
    whole = enough["node_bytes"]
    assert enough["fits"] and enough["scratch_bytes"] == 0
    for over in (0, 5000, KEPT):
        found = held(whole - over)
        assert found["fits"] and found["node_bytes"] == whole - over
        assert found["scratch_bytes"] == over
        assert found["scratch_written_per_epoch"] == found["scratch_read_per_epoch"] == over
    short = held(whole - KEPT - 1)
    assert not short["fits"] and short["node_bytes"] == whole - KEPT and short["scratch_bytes"] == KEPT


def test_as_it_is_started(graph, tmp_path, capsys):
    words = ["estimate", "--graph", str(graph), "--model", "sage", "--hidden", "16", "--ranks", "2", "--memory"]
    written = tmp_path / "e.json"
    assert main([*words, "1M", "--json", str(written)]) == 0
    out = capsys.readouterr().out
    assert "within --memory 1M of a node" in out and "none fits; what helps: " in out
    (row,) = json.loads(written.read_text())
    assert row["within"]["fits"] is False and row["within"]["memory_bytes"] == 1 << 20
    assert row["within"]["node_bytes"] > 1 << 20, "what it takes at least"
    assert main([*words, "64G"]) == 0
    assert "fewest ranks that fit: 2" in capsys.readouterr().out
