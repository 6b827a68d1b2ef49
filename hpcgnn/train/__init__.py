"""One training run from the options to the run directory."""
