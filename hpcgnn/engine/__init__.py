"""The training loop: steps, epochs, optimizers, checkpoints, the run directory. It knows no command and no plugin."""
