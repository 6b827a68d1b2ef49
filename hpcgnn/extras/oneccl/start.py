"""oneCCL between its start and its end, on ranks that have started MPI: by that they find each other, and end."""

import ctypes

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.heartbeat import Heartbeat
from hpcgnn.comm.start_mpi import StartedMpi
from hpcgnn.errors import ConfigError
from hpcgnn.extras.oneccl.library import check_settings, load, transport_named


class StartedOneCcl(StartedMpi):
    """As `StartedMpi`. Raises ConfigError also, on all ranks, if the library is not there on one."""

    def __init__(self, limit: float, failure: tuple[str, str] | None = None) -> None:
        super().__init__(limit, failure)
        library, mistake = None, None
        try:
            library = load()
            check_settings()
        except ConfigError as error:
            mistake = str(error)
        found = self._world.allgather(mistake)
        mistakes = [each for each in found if each is not None]
        if mistakes or library is None:
            self.finish()
            raise ConfigError.on_all(mistakes[0])
        self._library: ctypes.CDLL = library

    def transport(self, crowding: float, heartbeat: Heartbeat) -> Communicator:
        """The OneCclCommunicator of all ranks. Collective."""
        from hpcgnn.extras.oneccl.communicator import oneccl_communicator

        return oneccl_communicator(
            self._library, self._world, self.ranks_on_node, self.binding.cores, crowding, heartbeat
        )

    def describe(self) -> str:
        """Describe the transport for people."""
        version = self._library.hpo_version().decode()
        return f"oneCCL {version} over {transport_named()}; beside it {super().describe()}"
