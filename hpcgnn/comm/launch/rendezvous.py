"""How ranks find each other without an MPI library: all connect to rank 0, introduce themselves, and learn of the
others.

Rank 0's address comes from the launcher. mpiexec has a key-value space (`pmi.py`). For other launchers, the environment
names the first node, and the port is one of a few derived from the job's number. There, rank 0 first sends its job's
name. So a port in use by another program is skipped, and two jobs on one node do not mix.

Both ends then prove that they know the secret of the job (`secret.py`): each seals what it sends together with a number
that the other end has drawn. Whoever knows the job's number alone is no rank, and not rank 0.

Plain sockets, no torch: a rank that could not load its packages comes here too, to report it, or the others would wait.
"""

import contextlib
import hashlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpcgnn.comm.launch.addresses import LOOPBACK, family_of, is_own, own_addresses, resolve
from hpcgnn.comm.launch.launcher import Launch
from hpcgnn.comm.launch.pmi import Pmi
from hpcgnn.comm.launch.secret import BYTES, is_seal, seal, secret_of_user
from hpcgnn.errors import ConfigError
from hpcgnn.listing import ranges

_PORTS, _FIRST_PORT, _NUMBER_OF_PORTS = 16, 20_000, 12_000
# A listener that is silent for this number of seconds is not rank 0.
_SECONDS_TO_BE_GREETED = 5.0
_SECONDS_BETWEEN_ROUNDS = 0.1
# Rank 0 gives up first, since it can say who is missing.
_SECONDS_FOR_RANK_0 = 5.0
_KEY = "hpcgnn-rank-0"


@dataclass(frozen=True)
class Place:
    """Where rank 0 listens: any of these addresses, at any of these ports (0: one that is free).

    Attributes:
        word: for whom it listens.
        secret: known to the ranks of the job alone.
    """

    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    word: str
    secret: bytes


class Meeting(NamedTuple):
    """The result of a rendezvous.

    Attributes:
        said: the message of each rank, by rank.
        address: this rank's address on the way to the others.
        first: address of rank 0.
        offer: rank 0's message to all.
        key: bytes that the ranks of this job alone know.
    """

    said: list[dict[str, Any]]
    address: str
    first: str
    offer: Any
    key: bytes


def meet(launch: Launch, pmi: Pmi | None, mine: dict[str, Any], offer: Callable[[str], Any], limit: float) -> Meeting:
    """Send `mine` (JSON) to all ranks. Collective.

    Args:
        launch: the launcher's facts.
        pmi: the connection to mpiexec, or None.
        mine: this rank's message.
        offer: offer(address) makes rank 0's message (JSON) after all have come.
        limit: seconds, 0 for ever.

    Raises:
        ConfigError: not all ranks came.
    """
    if launch.rank == 0:
        with _listen(launch, pmi) as listener:
            return _gather(launch, listener, mine, offer, limit)
    end = time.monotonic() + limit + _SECONDS_FOR_RANK_0 if limit else float("inf")
    place = _told(pmi) if pmi is not None else _known_place(launch)
    connection, where, lines = _find(launch, place, mine, end)
    with connection:
        try:
            answer = lines.opened("rank 0", next(lines, {}))
        except OSError:
            answer = {}
        if not answer:
            raise ConfigError(f"rank 0 has ended while the ranks met at {where}")
        if "missing" in answer:
            raise ConfigError.on_all(answer["missing"])
        own, first = connection.getsockname()[0], connection.getpeername()[0]
        if own.startswith("127."):  # on the node of rank 0, whose name may lead to itself alone: others know it better
            own = first = answer["first"]
        return Meeting(answer["said"], own, first, answer["offer"], _key(place.secret, answer["draw"]))


def _known_place(launch: Launch) -> Place:
    """Return rank 0's address by the environment."""
    if launch.one_node:
        address = LOOPBACK
    elif launch.host:
        address = resolve(launch.host)
    else:
        raise ConfigError(
            f"{launch.by} does not say on which node rank 0 runs; set MASTER_ADDR to an address of that node"
        )
    if launch.port is not None:
        return Place((address,), (launch.port,), _word(launch.job), secret_of_user())
    seed = int.from_bytes(hashlib.sha256(launch.job.encode()).digest()[:8], "little")
    ports = tuple(_FIRST_PORT + (seed + 751 * number) % _NUMBER_OF_PORTS for number in range(_PORTS))
    return Place((address,), ports, _word(launch.job), secret_of_user())


def _key(secret: bytes, draw: str) -> bytes:
    return bytes.fromhex(seal(secret, "key", draw))


def _word(job: str) -> str:
    return f"hpcgnn {job}"


def _listen(launch: Launch, pmi: Pmi | None) -> "_Listener":
    """Rank 0's socket, and the word for it."""
    if pmi is not None:
        address = LOOPBACK if launch.one_node else ""
        listener = _Listener(socket.create_server((address, 0), backlog=launch.size), "", os.urandom(BYTES))
        port = listener.socket.getsockname()[1]
        listener.word = _word(f"{socket.gethostname()}:{port}")
        addresses = [LOOPBACK] if launch.one_node else own_addresses()
        pmi.put(_KEY, f"{port}/{socket.gethostname()}/{listener.secret.hex()}/{'/'.join(addresses[:8])}")
        pmi.barrier()
        return listener
    place = _known_place(launch)
    address = place.addresses[0]
    if not is_own(address):
        raise ConfigError(
            f"rank 0 runs on {launch.node}, but the others look for it at {address} ({launch.host}, as {launch.by} "
            "says); set MASTER_ADDR to an address of the node of rank 0"
        )
    # The name of its own node leads to itself alone on some systems, and elsewhere for all others.
    family = family_of(address)
    everywhere = "::" if family == socket.AF_INET6 else ""
    for port in place.ports:
        with contextlib.suppress(OSError):
            at = (address if launch.one_node else everywhere, port)
            return _Listener(socket.create_server(at, family=family, backlog=launch.size), place.word, place.secret)
    raise ConfigError(
        f"rank 0 finds none of the ports {', '.join(map(str, place.ports))} of {address} free; set MASTER_PORT to one "
        "that is"
    )


def _told(pmi: Pmi) -> Place:
    """Where rank 0 listens by its own words."""
    pmi.barrier()
    port, host, secret, *addresses = pmi.get(_KEY).split("/")
    return Place(tuple(addresses), (int(port),), _word(f"{host}:{port}"), bytes.fromhex(secret))


@dataclass
class _Listener:
    socket: socket.socket
    word: str
    secret: bytes

    def __enter__(self) -> "_Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class _Lines:
    """The lines of a connection, each a JSON object: an iterator that waits until `read` has one.

    Attributes:
        mine, theirs: numbers that this end and the other one have drawn.
    """

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        self.connection, self._secret, self._rest = connection, secret, b""
        self.mine, self.theirs = os.urandom(BYTES).hex(), ""

    def send(self, sender: str, **words: Any) -> None:
        """Send a sealed line. sender: 'rank' or 'rank 0'."""
        self.connection.sendall(_line({**words, "seal": seal(self._secret, sender, self.theirs, words)}))

    def opened(self, sender: str, line: dict[str, Any]) -> dict[str, Any]:
        """A line without its seal; {} if this sender has not sealed it for this end."""
        words = {name: value for name, value in line.items() if name != "seal"}
        return words if is_seal(line.get("seal"), self._secret, sender, self.mine, words) else {}

    def read(self) -> dict[str, Any] | None:
        """Return the next complete line, or None. Raises EOFError if the other end is gone."""
        more = self.connection.recv(1 << 16)
        if not more:
            raise EOFError
        self._rest += more
        return self._cut()

    def _cut(self) -> dict[str, Any] | None:
        line, newline, rest = self._rest.partition(b"\n")
        if not newline:
            return None
        self._rest = rest
        found = json.loads(line)
        return found if isinstance(found, dict) else {}

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> dict[str, Any]:
        try:
            found = self._cut()
            while found is None:
                found = self.read()
            return found
        except EOFError:
            raise StopIteration from None


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _gather(
    launch: Launch, listener: _Listener, mine: dict[str, Any], offer: Callable[[str], Any], limit: float
) -> Meeting:
    """Rank 0: wait for all, and answer them."""
    said, connections = {0: mine}, {}
    end = time.monotonic() + limit if limit else float("inf")
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        selector.register(listener.socket, selectors.EVENT_READ)
        while len(said) < launch.size and time.monotonic() < end:
            for key, _ in selector.select(min(1.0, max(0.0, end - time.monotonic()))):
                if key.fileobj is listener.socket:
                    connection, _ = listener.socket.accept()
                    stack.enter_context(connection)
                    lines = _Lines(connection, listener.secret)
                    with contextlib.suppress(OSError):
                        connection.sendall(_line({"for": listener.word, "draw": lines.mine}))
                        selector.register(connection, selectors.EVENT_READ, lines)
                    continue
                try:
                    found = key.data.read()
                    if found is not None:
                        found = key.data.opened("rank", found)
                        rank, theirs, key.data.theirs = int(found["rank"]), found["said"], found["draw"]
                        if not 0 < rank < launch.size:
                            raise ValueError(rank)
                        key.data.send("rank 0", welcome=rank)
                        said[rank], connections[rank] = theirs, key.data
                except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):
                    found = {}  # somebody else, or a rank that will come again
                if found == {}:
                    selector.unregister(key.fileobj)
        if len(said) < launch.size:
            missing = sorted(set(range(launch.size)) - said.keys())
            text = (
                f"rank {ranges(missing)} of {launch.size} has not come to rank 0 ({launch.node}) in {limit:g} s "
                f"(--watchdog); {launch.by} announced {launch.size} ranks"
            )
            _answer(connections.values(), {"missing": text})
            raise ConfigError.on_all(text)
        # By how the others came, of those ways the one that leads furthest.
        ways = [each.connection.getsockname()[0] for each in connections.values()]
        address = next((way for way in ways if not way.startswith("127.")), ways[0])
        given = offer(address)
        everyone, draw = [said[rank] for rank in range(launch.size)], os.urandom(BYTES).hex()
        _answer(connections.values(), {"said": everyone, "offer": given, "first": address, "draw": draw})
        return Meeting(everyone, address, address, given, _key(listener.secret, draw))


def _answer(ranks: Iterable[_Lines], words: dict[str, Any]) -> None:
    for each in ranks:
        with contextlib.suppress(OSError):  # one that has left is missed by the others soon enough
            each.connection.settimeout(_SECONDS_TO_BE_GREETED)
            each.send("rank 0", **words)


def _find(launch: Launch, place: Place, mine: dict[str, Any], end: float) -> tuple[socket.socket, str, _Lines]:
    """A connection to rank 0, which may not have come yet, and has been told of `mine`. (connection, its address in
    words, its lines).
    """
    last = "nothing listens there"
    while time.monotonic() < end:
        for address in place.addresses:
            for port in place.ports:
                left = end - time.monotonic()
                try:
                    connection = socket.create_connection((address, port), min(_SECONDS_TO_BE_GREETED, max(0.1, left)))
                except OSError as error:
                    last = error.strerror or str(error)
                    continue
                lines = _Lines(connection, place.secret)
                try:
                    greeting, last = next(lines, {}), "what listens there is of another job"
                    if greeting.get("for") == place.word:
                        lines.theirs, last = greeting["draw"], "what listens there does not know the secret of the job"
                        lines.send("rank", rank=launch.rank, said=mine, draw=lines.mine)
                        if lines.opened("rank 0", next(lines, {})):
                            connection.settimeout(None if end == float("inf") else max(1.0, end - time.monotonic()))
                            return connection, f"{address}:{port}", lines
                except (OSError, ValueError, KeyError):
                    last = "what listens there is not of hpcgnn"
                connection.close()
        time.sleep(_SECONDS_BETWEEN_ROUNDS)
    where = " or ".join(place.addresses)
    raise ConfigError(
        f"rank {launch.rank} of {launch.size} on {launch.node} cannot reach rank 0 at {where}, port "
        f"{', '.join(map(str, place.ports))}: {last}; check that rank 0 runs there and that no firewall is between the "
        "nodes, or set MASTER_ADDR (and MASTER_PORT) to what can be reached"
    )
