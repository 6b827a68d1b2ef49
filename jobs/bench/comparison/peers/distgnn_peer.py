"""Runs Dist-GNN's main.py as it is, and keeps its initial weights, the loss and the costs of each step.

    mpiexec -n P python distgnn_peer.py CODE OUT OPTION=VALUE …

CODE: the folder of its main.py. OUT gets initial.pt and steps-RANK.json. Runs in Dist-GNN's own environment.
"""

import json
import runpy
import sys
import time
from pathlib import Path


def main():
    code, out = map(Path, sys.argv[1:3])
    sys.argv = [str(code / "main.py"), *sys.argv[3:]]
    sys.path[0] = str(code)
    import torch
    import trainer

    kept, steps = trainer.Trainer, []

    class Observed(kept):
        def __init__(self, *given, **named):
            begun = time.perf_counter()
            super().__init__(*given, **named)
            self.set_up_seconds = time.perf_counter() - begun

        def build_model(self):
            model = super().build_model()
            if self.rank == 0:
                torch.save(model.state_dict(), out / "initial.pt")
            return model

        def train_step(self, data):
            wall, processor = time.perf_counter(), time.process_time()
            loss = float(super().train_step(data).detach())
            processor = time.process_time() - processor
            steps.append({"loss": loss, "seconds": time.perf_counter() - wall, "processor_seconds": processor})
            return torch.tensor(loss, dtype=torch.float64)

        def save_model(self):
            (out / f"steps-{self.rank}.json").write_text(json.dumps([self.set_up_seconds, steps]))

    trainer.Trainer = Observed
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
