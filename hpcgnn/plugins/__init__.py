"""Optional behaviour of a training run, one file each: averages, learned features, trace, profiles."""
