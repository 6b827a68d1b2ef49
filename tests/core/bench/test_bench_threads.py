"""`jobs/bench/threads/threads.py`: each question has an answer on any machine, in processor time of a thread."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "jobs" / "bench" / "threads" / "threads.py"


def answer(*options):
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prepared_messages_are_posted_in_a_fraction_of_the_time():
    """It was a sixteenth when this was written."""
    lines = answer("messages", "--peers", "300", "--turns", "11").splitlines()
    assert lines[0].startswith("300 messages of 256 bytes each way")
    numbers = {line[:45].strip(): [float(word) for word in line[45:].split()] for line in lines[3:-1]}
    one_by_one, prepared = numbers["posted one by one"], numbers["prepared, from then on"]
    assert one_by_one[1] == 1.0 and prepared[0] < one_by_one[0] / 4 and prepared[1] > 4
    assert len(numbers["prepared, the second time (requests are made)"]) == 1


def test_every_question_says_what_it_is():
    help_ = answer("--help")
    assert "messages" in help_ and "--peers" in answer("messages", "--help")
