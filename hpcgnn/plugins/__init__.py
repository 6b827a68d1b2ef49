"""Optional behaviour of a training run, one file each: averages, coded keeping, the state of schedules, memory."""
