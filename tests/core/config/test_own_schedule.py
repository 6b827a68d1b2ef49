"""A schedule of a user's own is one file for `--plugin`: it trains, and has options of its own."""

import json
import re
from pathlib import Path

import pytest

from hpcgnn import config
from hpcgnn.__main__ import main
from hpcgnn.config import SECTION_OF, read_toml
from hpcgnn.options import SECTIONS
from hpcgnn.plan.choices import registry_choices
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES, register
from hpcgnn.schedules.tma import TmaConfig
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.generators.spec import Spec

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


@pytest.fixture
def forgotten():
    """Leave no schedule and no option to other tests."""
    registry_choices()
    kept = [(each, dict(each)) for each in (SCHEDULES, SECTIONS, SECTION_OF, config._OWNED["schedule"])]
    yield lambda: [(each.clear(), each.update(before)) for each, before in kept]
    for each, before in kept:
        each.clear()
        each.update(before)


def test_one_file_is_a_schedule_with_options(tmp_path, capsys, forgotten):
    if not PAGE.exists():
        pytest.skip("there is no documentation beside the tests")
    (file,) = re.findall(r"```python\n(# slow.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "slow.py").write_text(file)
    generate_graph("planted", tmp_path / "g.h5", Spec(nodes=60, degree=4, features=4, classes=3, seed=1))
    job = ["train", "--plugin", str(tmp_path / "slow.py"), "--graph", str(tmp_path / "g.h5"), "--epochs", "1"]
    run = ["--schedule", "slow", "--run-dir", str(tmp_path / "run"), "--reduce-dtype", "bf16", "--ema", "0.5"]
    (tmp_path / "c.toml").write_text("[schedule]\npauses = 3\n")
    assert main([*job, *run, "--config", str(tmp_path / "c.toml")]) == 0
    out = capsys.readouterr()
    assert "pauses: 3" in out.out and "without effect" not in out.err
    assert read_toml(tmp_path / "run" / "config.toml")["pauses"] == 3
    assert json.loads((tmp_path / "run" / "summary.json").read_text())
    forgotten()  # as in another process, which runs the file again
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    forgotten()
    assert main([*job, "--dry-run", "1", "--set", "schedule.pauses=5"]) == 2
    assert "--pauses belongs to --schedule slow, got --schedule sar" in capsys.readouterr().err


def test_a_name_that_is_taken_is_refused():
    registry_choices()
    entry = SCHEDULES["tma"]
    with pytest.raises(ValueError, match="the schedule 'tma' exists"):
        register("tma", entry)
    with pytest.raises(ValueError, match=r"the option 'average_steps' exists in \[schedule\]"):
        register("other", ScheduleEntry(entry.build, entry.traits, options=TmaConfig))
    assert "other" not in SCHEDULES
