"""Draws the predictions of the tour in docs/quickstart.md: clubs.png."""

import matplotlib.pyplot as plt
import networkx
import pandas as pd

edges, members = pd.read_csv("edges.csv"), pd.read_csv("predictions.csv").set_index("id")
graph = networkx.from_pandas_edgelist(edges, "src", "dst")
colours = members.loc[list(graph), "probability_1"]
networkx.draw(graph, networkx.spring_layout(graph, seed=1), node_color=colours, cmap="coolwarm", with_labels=True)
plt.savefig("clubs.png")
