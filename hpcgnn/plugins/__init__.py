"""Optional behaviour of a training run, one file each: coded keeping, the state of schedules, memory."""
