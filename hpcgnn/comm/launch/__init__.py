"""How a job starts and ends: the launcher, the transport, the first meeting of the ranks, the end."""
