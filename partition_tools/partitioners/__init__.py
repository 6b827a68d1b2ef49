"""Clusters of a graph: the methods, and the order and the weights that they share.

METIS and KaMinPar run in processes of their own, which import this package. So it loads nothing.
"""
