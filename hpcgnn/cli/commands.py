"""Commands that packages of `hpcgnn.extras` and the user's file add to `hpcgnn`, and the call of a command on ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpcgnn.config import Choices, Config
from hpcgnn.registry import Registry

if TYPE_CHECKING:
    from hpcgnn.comm.session import Session

#: argparse's sub-parsers of `hpcgnn`, a class that is generic in stubs alone.
Commands = Any
#: add(commands, choices) adds a parser to them.
COMMANDS: Registry[Callable[[Commands, Choices], None]] = Registry("command")


def on_ranks(main: Callable[["Session"], int], config: Config) -> int:
    """Call main(session) with the threads, the watchdog and the transport of a configuration; returns the exit code.
    An error of memory has advice. Collective.
    """
    from hpcgnn.app.out_of_memory import with_memory_advice
    from hpcgnn.comm.run import run

    options = config.run
    return run(with_memory_advice(main), options.threads or None, watchdog=options.watchdog, transport=options.comm)
