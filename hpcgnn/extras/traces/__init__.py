"""What ranks do in each epoch, for the viewer of others (docs/traces.md): `--trace` for Perfetto."""
