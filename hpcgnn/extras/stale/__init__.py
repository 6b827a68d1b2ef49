"""The schedule `stale`: remote rows and their gradients are some epochs old (PipeGCN), so nothing waits for messages.

It is the baseline of papers on delayed rows (docs/schedules.md).
"""
