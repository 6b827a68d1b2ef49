"""What a job will take, before it is queued: memory, messages and seconds for any number of ranks.

    shares     what each rank will hold and receive: counted from a graph file, or assumed from a few numbers
    copy       a small copy of a rank: its share of nodes, edges, halo and training nodes, made up
    trial      the real program on small copies, with nobody on the other end: what it takes, holds and sends
    forecast   what follows for a rank of full size: memory by part, bytes and messages, work and seconds
    machine    how fast a machine does what there is to do, from a machine file
    command    `hpcgnn estimate`

Nothing here knows a model, a schedule or an option. All of them are tried out on two small copies of a rank, and what
they take grows in a straight line with the copy. So a layer that is written tomorrow has its estimate, too.
"""
