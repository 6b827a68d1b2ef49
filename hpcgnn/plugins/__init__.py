"""Optional behaviour of a training run, one file each: averages, label reuse, learned features, trace, profiles."""
