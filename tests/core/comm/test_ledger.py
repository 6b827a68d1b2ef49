"""The ledger: booked values are found again, once since the last look and always in total."""

from hpcgnn.comm.ledger import Ledger


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
