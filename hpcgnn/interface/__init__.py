"""Training in scripts and notebooks: `hpcgnn.load`, and the graph that it returns.

The package takes the loss, the metrics and the loading of a job from the rooms below, and leaves the loop to the
script.
"""
