"""What ranks do and learn in each epoch, for the viewers of others (docs/traces.md): `--trace` for Perfetto, and
`--tensorboard`.
"""
