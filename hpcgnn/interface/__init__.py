"""What a script or a notebook of one's own trains with: `hpcgnn.load`, and the graph that it gives.

A room of its own above train/: it takes the loss, the metrics and the loading of a job from there, and leaves the loop
to the script.
"""
