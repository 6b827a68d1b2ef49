"""More optimizer steps in an epoch, on shares of the clusters: the schedules `historical` and `batches`.

They are for whoever wants an accuracy in fewer epochs (docs/schedules.md, "More steps in an epoch").
"""
