"""Layers and models, which know neither schedules nor MPI."""
