"""A schedule of a user's own is one file for `--plugin`: it trains, and has options of its own."""

import re
from pathlib import Path

import graphs
import pytest

from hpcgnn.plan.choices import registry_choices
from hpcgnn.schedules.base import ScheduleEntry
from hpcgnn.schedules.schedule_registry import SCHEDULES, register
from hpcgnn.schedules.tma import TmaConfig

from ..forked import start

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


def test_one_file_is_a_schedule_with_options(tmp_path):
    if not PAGE.exists():
        pytest.skip("there is no documentation beside the tests")
    (file,) = re.findall(r"```python\n(# slow.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "slow.py").write_text(file)
    graphs.planted(tmp_path / "g.h5", nodes=60, degree=4, features=4)
    job = ["train", "--plugin", str(tmp_path / "slow.py"), "--graph", str(tmp_path / "g.h5"), "--epochs", "1"]
    run = ["--schedule", "slow", "--run-dir", str(tmp_path / "run"), "--reduce-dtype", "bf16", "--ema", "0.5"]
    (tmp_path / "c.toml").write_text("[schedule]\npauses = 3\n")
    done = start(0, "-m", "hpcgnn", *job, *run, "--config", tmp_path / "c.toml")
    assert done.code == 0 and "pauses: 3" in done.out and "without effect" not in done.err, done.err
    assert "pauses = 3" in (tmp_path / "run" / "config.toml").read_text()
    done = start(0, "-m", "hpcgnn", "evaluate", tmp_path / "run")
    assert done.code == 0, done.err
    done = start(0, "-m", "hpcgnn", *job, "--dry-run", "1", "--set", "schedule.pauses=5")
    assert done.code == 2 and "--pauses belongs to --schedule slow, got --schedule sar" in done.err


def test_a_name_that_is_taken_is_refused():
    registry_choices()
    entry = SCHEDULES["tma"]
    with pytest.raises(ValueError, match="the schedule 'tma' exists"):
        register("tma", entry)
    with pytest.raises(ValueError, match=r"the option 'average_steps' exists in \[schedule\]"):
        register("other", ScheduleEntry(entry.build, entry.traits, options=TmaConfig))
    assert "other" not in SCHEDULES
