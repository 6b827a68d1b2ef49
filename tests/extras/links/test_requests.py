"""Lists of pairs as users write them, and requests that are refused."""

import numpy as np
import pytest

from hpcgnn.app.predict import PredictRequest
from hpcgnn.config import make_config
from hpcgnn.errors import ConfigError, FormatError
from hpcgnn.extras.links.tables import LinkTable, read_pairs
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.plan.choices import registry_choices
from partition_tools.interface.arrays import save_graph


@pytest.mark.filterwarnings("ignore")
def test_lists_of_pairs(tmp_path):
    words = ["b,c", "7", "a"]
    save_graph(tmp_path / "g.h5", [["a", "7"], ["7", "b,c"]], node_ids=np.array(words))
    with GraphFile(tmp_path / "g.h5") as file:
        for text in (
            'a,7\na,"b,c"\n',
            "a\t7\r\n\na\tb,c",
            "a 7\na b,c\n",
            'split,target,source\nval,7,a\nval,"b,c",a\n',
        ):
            (tmp_path / "pairs.txt").write_text(text)
            assert read_pairs(str(tmp_path / "pairs.txt"), file).tolist() == [[2, 1], [2, 0]], text
        for text, told in (("", "got no line"), ("a,7,b\n", "got a 7 b"), ("a,8\n", "no node has the id 8")):
            (tmp_path / "pairs.txt").write_text(text)
            with pytest.raises(FormatError, match=told):
                read_pairs(str(tmp_path / "pairs.txt"), file)


@pytest.mark.parametrize(
    "task, asked, told",
    [
        ("classification", {"pairs": "p.csv"}, "--pairs: expected a run of --task links, got one of classification"),
        ("links", {"best": 0}, "--best: expected a number of targets from 1, got 0"),
        ("links", {"best": 3, "held_out": True}, "--best --held-out writes a table of its own"),
        ("links", {"pairs": "p.csv", "nodes": "n.txt"}, "--pairs writes a table of its own"),
        ("links", {"held_out": True, "output": "o.h5"}, "--held-out: expected a name of --output that ends with .csv"),
    ],
)
def test_what_is_refused(task, asked, told):
    metric = {"links": "mrr", "classification": "accuracy"}[task]
    config = make_config({"graph": "g.h5", "task": task, "metric": metric, "run_dir": "run"}, registry_choices())
    with pytest.raises(ConfigError, match=told):
        of_request = {name: asked.pop(name) for name in ("output", "nodes") if name in asked}
        PredictRequest(**{"output": "o.csv", **of_request}, table=LinkTable(**asked)).check(config)
