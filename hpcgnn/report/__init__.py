"""Tables and figures from what runs have written; needs neither torch nor MPI."""
