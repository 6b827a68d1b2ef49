"""The cost of a job before it is queued: memory, messages and seconds for any number of ranks.

    counts     each rank's share: counted from a graph file, or assumed from a few numbers
    trial      the real program on small copies of a rank, without other ranks: its memory, work and messages
    forecast   the result for a rank of full size: memory by part, bytes and messages, work
    like       seconds of an epoch, scaled from a run
    command    `hpcgnn estimate`

The package knows no model, schedule or option. It tries them on two small copies of a rank, and their cost grows in a
straight line with the copy. So a future layer has its estimate, too.
"""
