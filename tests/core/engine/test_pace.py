"""Lines while epochs go by: the epoch and their number, the time still needed; and the number of such lines."""

from hpcgnn.engine.clock import Pace


def lines(epochs, seconds, begun=0, scored=1):
    """[(time, text)] of a run whose epochs take this many seconds by its clock."""
    now, found = [100.0], []
    pace = Pace(begun, clock=lambda: now[0])
    for epoch in range(begun, epochs):
        now[0] += seconds
        record = {"epoch": epoch + 1, "loss": 2.3, "seconds": {"epoch": {"max": seconds * 0.75}}}
        if (epoch + 1) % scored == 0:
            record.update(train=0.1, val=0.2, test=0.3)
        last = epoch + 1 == epochs
        text = pace.line(record, epochs - epoch - 1, last)
        if text:
            found.append((now[0] - 100, text))
    return found


def test_the_first_epoch_says_all():
    (_, first), *_ = lines(200, 1.2)
    assert first == ("epoch 1/200  loss 2.3000  train 0.1000  val 0.2000  test 0.3000  0.9 s/epoch, about 4.0 min left")
    (_, slow), *_ = lines(200, 40)
    assert slow.endswith("30 s/epoch, about 2.2 h left")
    (_, short), *_ = lines(3, 1.2)
    assert short.endswith("about 2 s left")
    (_, later), *_ = lines(110, 1.0, begun=100)  # a run that goes on counts what it does itself
    assert later.startswith("epoch 101/110") and "0.75 s/epoch, about 9 s left" in later


def test_a_long_log_stays_short_and_no_pause_is_long():
    found = lines(10_000, 1.2)
    times = [time for time, _ in found]
    pauses = [b - a for a, b in zip(times, times[1:])]
    assert len(found) < 70 and max(pauses) <= 301.3 and min(pauses[:-1]) >= 10
    assert found[-1][1].startswith("epoch 10000/10000") and "left" not in found[-1][1]
    assert len(lines(10_000, 0.001)) <= 3 and len(lines(5, 1000)) == 5


def test_metrics_are_of_the_last_evaluation():
    found = [text for _, text in lines(25, 1.0, scored=4)]
    assert [text.split()[1] for text in found] == ["1/25", "11/25", "21/25", "25/25"]
    assert "val" not in found[0] and "test 0.3000 (of epoch 8)" in found[1] and "test 0.3000 (of epoch 20)" in found[2]
