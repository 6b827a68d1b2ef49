"""Tables and figures from the files of runs; needs neither torch nor MPI."""
