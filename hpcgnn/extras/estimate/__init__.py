"""The cost of a job before it is queued: memory, messages and seconds for any number of ranks.

    shares      each rank's share, counted from a graph file
    small_copy  a rank of small size, without other ranks
    trial       the real program on such copies: its memory, work and messages
    traffic     bytes and messages between all ranks
    forecast    the result for a rank of full size: memory by part, bytes and messages, work
    like        seconds of an epoch, scaled from a run
    command     `hpcgnn estimate`

The package knows no model, schedule or option. It tries them on two small copies of a rank, and their cost grows in a
straight line with the copy. So a future layer has its estimate, too.
"""
