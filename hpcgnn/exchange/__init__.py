"""Rows between ranks: who sends which to whom in which round, and how they travel in bounded memory."""
