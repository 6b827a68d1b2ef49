"""Messages between ranks: the launcher, the transport, the watchdog. The one room that imports mpi4py."""
