"""Machine files: what is written is read again, one may build on another, and what is wrong is said in one line."""

import tomllib

import pytest
import tomli_w

from hpcgnn.errors import ConfigError
from hpcgnn.estimate.machine.machine import Rate, read_machine
from hpcgnn.estimate.trial.operations import Operation

from ..machines import made_up


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "base.toml").write_text(made_up().to_toml())
    return tmp_path


def write(folder, text, name="other.toml"):
    (folder / name).write_text(text)
    return folder / name


def test_what_is_written_is_read(folder):
    assert read_machine(folder / "base.toml") == made_up()
    assert '    ["gather", "fp32", 64, 64, 2e-08, 1e-08],\n' in (folder / "base.toml").read_text(), "a rate, a line"


def test_one_that_is_like_another(folder):
    machine = read_machine(write(folder, 'like = "base.toml"\nname = "faster"\ncores = 64\nfaster = 2\n'))
    base = made_up()
    assert (machine.name, machine.cores, machine.memory) == ("faster", 64, base.memory)
    assert (machine.call, machine.torch_byte) == (base.call / 2, base.torch_byte / 2)
    assert machine.reading.seconds == [[each / 2 for each in times] for times in base.reading.seconds]
    operation = Operation("gather", "fp32", 64)
    assert machine.seconds_per_unit(operation) == pytest.approx([x / 2 for x in base.seconds_per_unit(operation)])
    assert machine.network == base.network, "a faster core is no faster network"


def test_part_of_a_table_that_is_like_anothers(folder):
    machine = read_machine(write(folder, 'like = "base.toml"\n[network]\nbandwidth = 5e10\n'))
    assert machine.network.bandwidth == 5e10 and machine.network.latency == made_up().network.latency


def test_rates_of_the_nearest_shapes():
    machine = made_up()
    assert machine.seconds_per_unit(Operation("gather", "fp32", 64)) == pytest.approx((2e-8, 1e-8))
    assert machine.seconds_per_unit(Operation("gather", "fp32", 128))[0] == pytest.approx(4e-8)
    assert machine.seconds_per_unit(Operation("gather", "bf16", 64)) is not None, "as fp32, where nothing is known"
    assert machine.seconds_per_unit(Operation("unheard of", "fp32", 64)) is None


def test_products_with_a_column_are_of_their_own():
    """Each of many small ones is a call of its own, which says nothing of large ones, nor these of them."""
    rates = [Rate("product", "fp32", 1, 64, 4e-8, 0.0), Rate("product", "fp32", 32, 32, 9e-8, 0.0)]
    both, plain = made_up(rates=rates), made_up(rates=rates[1:])
    assert both.seconds_per_unit(Operation("product", "fp32", 1, 16))[0] == pytest.approx(1e-8)
    assert both.seconds_per_unit(Operation("product", "fp32", 32, 64))[0] == pytest.approx(18e-8)
    assert plain.seconds_per_unit(Operation("product", "fp32", 1, 32))[0] == pytest.approx(9e-8 / 2), "the only ones"


def test_few_columns_of_a_product_take_as_long_as_some_more():
    machine = made_up(rates=[Rate("multiply", "fp32", 16, 64, 4e-8, 0.0)])
    for width in (2, 4, 16):
        assert machine.seconds_per_unit(Operation("multiply", "fp32", width, 64))[0] == pytest.approx(4e-8)
    assert machine.seconds_per_unit(Operation("multiply", "fp32", 32, 64))[0] == pytest.approx(8e-8)


def test_what_older_files_do_not_say(folder):
    """Sums then take what sending twice does, and pages nothing."""
    machine = read_machine(folder / "base.toml")
    assert (machine.page, machine.network.summing(4)) == (0, pytest.approx(2 * 1e-10 * 3 / 4))
    newer = write(
        folder, 'like = "base.toml"\nfaster = 2\npage = 4e-7\n[network]\ncpu_seconds_per_summed_byte = 8e-10\n'
    )
    machine = read_machine(newer)
    assert (machine.page, machine.network.summing(4)) == (4e-7, pytest.approx(6e-10))
    assert read_machine(write(folder, machine.to_toml())) == machine


CURVES = {"speed": [[1, 1.0], [4, 3.0]], "speed_alone": [[2, 1.9]], "wake": [[4, 8e-6]]}


def test_a_thread_curve_is_read_and_inherited(folder):
    (folder / "curve.toml").write_text(made_up(**CURVES, watchdog=1e-3).to_toml())
    machine = read_machine(folder / "curve.toml")
    assert machine == made_up(**CURVES, watchdog=1e-3)
    assert [machine.speedup(threads, 4) for threads in (1, 2, 4, 9)] == pytest.approx([1, 1 + 2 / 3, 3, 3])
    assert [machine.speedup(threads, 1) for threads in (1, 2)] == pytest.approx([1, 1.9])
    assert machine.speedup(4, 1) == pytest.approx(3.0), "where one rank alone was not measured with so many"
    assert [machine.waking(threads) for threads in (1, 2, 4)] == pytest.approx([0, 8e-6 / 3, 8e-6])
    alike = read_machine(write(folder, 'like = "curve.toml"\nfaster = 2\n'))
    assert (alike.speed, alike.wake) == (machine.speed, [[4, 4e-6]]), "threads add as much on a faster core"
    assumed = read_machine(write(folder, 'like = "curve.toml"\nsecond_thread = 0.5\n'))
    one = made_up(speed=[[1, 1.0]], speed_alone=[[1, 1.0], [4, 3.5]], wake=[[4, 1e-6]])
    assert one.speedup(4, 2) == 3.5 and made_up(speed=[[1, 1.0]]).speedup(2, 4) == pytest.approx(1.9)
    assert one.assumed(4, 2) == ["threads of 2 ranks are as fast as those of one rank alone (speed_alone)"]
    assert not assumed.speed and assumed.speedup(5, 4) == pytest.approx(3.0), "as the nearer file says"


def refused(path):
    """The message of the one line that is printed."""
    with pytest.raises(ConfigError) as caught:
        read_machine(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_file(folder):
    message = refused(folder / "absent.toml")
    assert str(folder / "absent.toml") in message and "hpcgnn bench machine -o FILE" in message
    message = refused(write(folder, 'like = "absent.toml"\n'))
    assert "absent.toml" in message


@pytest.mark.parametrize("text", ["cores = ", "[network", "cores = 3\ncores = 4", "\x00"])
def test_no_toml(folder, text):
    assert f"{folder / 'other.toml'} is not valid TOML" in refused(write(folder, text))


@pytest.mark.parametrize("key", ["cores", "name", "call", "reading", "network", "libraries"])
def test_missing_keys(folder, key):
    values = tomllib.loads(made_up().to_toml())
    del values[key]
    message = refused(write(folder, tomli_w.dumps(values)))
    assert "other.toml is no machine file" in message and repr(key) in message and "jobs/machines/" in message


WRONG = {
    "a name that is none": ("coers = 4", "coers"),
    "no cores": ("cores = 0", "cores"),
    "cores in words": ('cores = "many"', "cores"),
    "half a rank": ("ranks = 1.5", "ranks"),
    "a latency in words": ('[network]\nlatency = "low"', "latency"),
    "no bandwidth": ("[network]\nbandwidth = 0", "bandwidth"),
    "no network": ("network = 3", "network"),
    "a call in words": ('call = "short"', "call"),
    "not a number": ("torch_byte = nan", "torch_byte"),
    "less than nothing": ("call = -1e-6", "call"),
    "rates of something else": ('rates = [["gather", "fp32"]]', "rates"),
    "a rate in words": ('rates = [["gather", "fp32", 64, 0, "fast", 0.0]]', "rates"),
    "a table of another shape": ("[reading]\nseconds = [[1e-9]]", "reading"),
    "a curve that is none": ("speed = 3", "speed"),
    "a curve of three columns": ("speed = [[1, 1.0, 2.0]]", "speed"),
    "half a thread": ("wake = [[1.5, 1e-6]]", "threads"),
    "a curve that falls": ("speed = [[4, 3.0], [2, 1.9]]", "speed"),
    "threads of no speed": ("speed_alone = [[2, 0]]", "factor"),
    "no faster": ("faster = 0", "faster"),
    "faster in words": ('faster = "twice"', "faster"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(folder, name):
    text, said = WRONG[name]
    message = refused(write(folder, f'like = "base.toml"\n{text}\n'))
    assert "other.toml is no machine file" in message and said in message and "jobs/machines/" in message


@pytest.mark.parametrize("like", ["3", '"other.toml"', '["base.toml"]'])
def test_like_something_that_is_no_other_file(folder, like):
    message = refused(write(folder, f"like = {like}\n"))
    assert "other.toml is no machine file" in message and "like" in message


def test_a_file_that_does_not_say_what_sharing_costs(tmp_path):
    """Older files do not: then it costs nothing."""
    text = made_up(shared_core=1.5).to_toml()
    (tmp_path / "new.toml").write_text(text)
    assert read_machine(tmp_path / "new.toml").shared_core == 1.5
    old = "\n".join(line for line in text.splitlines() if not line.startswith("shared_core"))
    (tmp_path / "old.toml").write_text(old)
    assert read_machine(tmp_path / "old.toml").shared_core == 1.0
