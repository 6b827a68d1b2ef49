"""The ledger: booked values are found again, once since the last look and always in total."""

from hpcgnn.comm.ledger import Entry, Ledger


def test_take_starts_again_and_total_goes_on():
    ledger = Ledger()
    ledger.add("halo", messages=1, bytes_sent=10)
    ledger.add("halo", messages=1, bytes_sent=5, seconds_waiting=0.5)
    assert ledger.take() == {"halo": Entry(2, 15, 0, 0.5)} and ledger.take() == {}
    ledger.add("halo", bytes_received=7)
    assert ledger.total() == {"halo": {"messages": 2, "bytes_sent": 15, "bytes_received": 7, "seconds_waiting": 0.5}}


def test_booked_as_the_outermost_name_even_after_an_exception():
    ledger = Ledger()
    try:
        with ledger.booked_as("evaluation"), ledger.booked_as("input"):
            ledger.add("halo", messages=1)
            raise KeyError
    except KeyError:
        pass
    ledger.add("halo", messages=1)
    assert {kind: entry.messages for kind, entry in ledger.take().items()} == {"evaluation": 1, "halo": 1}
