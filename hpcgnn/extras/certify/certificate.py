"""The certificate: its sentence, its table, and its files."""

import datetime
import math
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tabulate import tabulate

from hpcgnn import kernels
from hpcgnn.engine.summary import versions
from hpcgnn.extras.certify.judging import FIRST, LAST, LIMIT_FP64, differences, failed, limits, of_losses
from hpcgnn.extras.certify.measuring import CertifiedRun
from hpcgnn.records import latex, to_json, write_atomically
from hpcgnn.report.read import GRADIENTS, ROWS

FILES = "certificate.json", "certificate.md", "certificate.tex"


@dataclass(frozen=True)
class Certificate:
    """The measurements of all shapes. exact: of the same in float64; none where all are. pyg: of the user's model in
    PyG, in float64, or None.
    """

    shapes: Sequence[CertifiedRun]
    exact: Sequence[CertifiedRun]
    pyg: CertifiedRun | None = None

    @property
    def first(self) -> CertifiedRun:
        return self.shapes[0]

    @property
    def rounding(self) -> dict[str, float] | None:
        """{quantity: distance of the first shape from itself in float64}."""
        return differences(self.first, self.exact[0]) if self.exact else None

    @property
    def in_fp64(self) -> Sequence[CertifiedRun]:
        return self.exact or self.shapes

    @property
    def limits(self) -> dict[str, float]:
        return limits(self.rounding, self.first)

    @property
    def failure(self) -> tuple[CertifiedRun, str, float, float] | None:
        """(the first shape that differs by more than rounding, its first quantity, its difference, the limit)."""
        beside = [] if self.pyg is None else [(self.in_fp64[0], self.pyg)]
        judged = [(self.shapes, self.limits), (self.exact, limits(None, self.first))]
        for runs, allowed in [*judged, *((pair, limits(None, pair[1])) for pair in beside)]:
            for each in runs:
                found = differences(each, runs[0])
                if (name := failed(found, allowed)) is not None:
                    return each, name, found[name], allowed[name]
        return None

    def sentence(self) -> str:
        """The result in a line."""
        config, steps = self.first.config, len(self.first.losses)
        model, graph = config.model.model, Path(config.data.graph).name
        precision, exact, pyg = config.run.precision, self.in_fp64, self.pyg
        if (failure := self.failure) is not None:
            shape, name, value, allowed = failure
            verb = "differ" if name.startswith(("gradients", "parameters")) else "differs"
            where = "by PyG" if shape is pyg else f"at {_ranks([shape])}"
            return (
                f"The {name} of {model} on {graph} {where} {verb} by {value:.1e} from that at "
                f"{_ranks([self.first])}; rounding allows {allowed:.1e} ({shape.config.run.precision})"
            )
        losses = f"Losses of {steps} step{'s' if steps > 1 else ''} of {model} on {graph}"
        with_pyg = "" if pyg is None else f"with PyG to {_shown(_most([exact[0], pyg]))} in fp64"
        if len(self.shapes) == 1:
            if pyg is not None:
                return f"{losses} agree at {_ranks(self.shapes)} {with_pyg} (limit {LIMIT_FP64:.0e})"
            return f"{losses} at {_ranks(self.shapes)} are compared with no other number of ranks ({precision})"
        text = f"{losses} agree at {_ranks(self.shapes)} to {_shown(_most(exact))} in fp64 (limit {LIMIT_FP64:.0e})"
        if (rounding := self.rounding) is not None:
            text += f", and to {_shown(_most(self.shapes))} in {precision} (rounding {_shown(of_losses(rounding))})"
        return f"{text}, and {with_pyg}" if with_pyg else text

    def table(self, style: str = "rounded_outline") -> str:
        """A row for each shape, and rows of rounding and limits, with the metric of one split. style: of tabulate."""
        metrics = [
            f"{split} {self.first.config.run.metric}" for split in ("val", "train") if split in self.first.metrics
        ]
        names = [FIRST, LAST, "parameters", *metrics[:1]]
        heads = ["ranks", *(["losses, fp64"] if self.exact else []), "losses"]
        heads += ["first gradients", "last gradients", *names[2:]]
        sent = ["rows, MiB", "gradients, MiB", "messages", "halo rows"]

        def shown(found: dict[str, float], exact: str) -> list[str]:
            values = of_losses(found), *(found.get(name, math.nan) for name in names)
            texts = ["–" if math.isnan(value) else _shown(value) for value in values]
            return [exact, *texts] if self.exact else texts

        rows = [
            [
                str(each.shape),
                *(
                    ["–"] * (len(heads) - 1)
                    if each is self.first
                    else shown(differences(each, self.first), _shown(_most([self.exact[0], two])) if two else "")
                ),
                *(f"{sum(each.sent['bytes'].get(k, 0) for k in kinds) / 2**20:.3g}" for kinds in (ROWS, GRADIENTS)),
                f"{sum(each.sent['messages'].get(kind, 0) for kind in (*ROWS, *GRADIENTS)):,}",
                "{min:,}–{max:,}".format(**each.quality["halo_rows"]),
            ]
            for each, two in zip_longest(self.shapes, self.exact)
        ]
        if self.pyg is not None:
            found = differences(self.pyg, self.in_fp64[0])
            rows.append(["PyG, fp64", *shown(found, _shown(of_losses(found))), *[""] * len(sent)])
        if self.rounding is not None:
            rows.append(["rounding", *shown(self.rounding, "–"), *[""] * len(sent)])
        rows.append(["limit", *shown(self.limits, f"{LIMIT_FP64:.0e}"), *[""] * len(sent)])
        heads += sent
        return tabulate(rows, heads, tablefmt=style, disable_numparse=True, colalign=["right"] * len(heads))

    def record(self) -> dict[str, Any]:
        """The contents of certificate.json."""
        failure, config = self.failure, self.first.config
        return {
            "holds": failure is None,
            "sentence": self.sentence(),
            "failed": None if failure is None else {"ranks": str(failure[0].shape), "quantity": failure[1]},
            "steps": len(self.first.losses),
            "shapes": [
                {
                    "ranks": each.shape.ranks,
                    "replicas": each.shape.replicas,
                    "losses": each.losses,
                    "gradient_norms": [float(vector.norm()) for vector in each.gradients],
                    "metrics": each.metrics,
                    "differences": differences(each, self.first),
                    "differences_fp64": differences(two, self.exact[0]) if two else None,
                    "sent_in_the_last_step": each.sent,
                    "partition": each.quality,
                }
                for each, two in zip_longest(self.shapes, self.exact)
            ],
            "pyg": None
            if self.pyg is None
            else {"losses": self.pyg.losses, "differences_fp64": differences(self.pyg, self.in_fp64[0])},
            "rounding": self.rounding,
            "limits": self.limits,
            "graph": config.data.graph,
            "graph_uuid": self.first.graph_uuid,
            "seed": config.run.seed,
            "versions": versions(),
            "kernels": kernels.describe(),
            "host": socket.gethostname(),
            "date": str(datetime.date.today()),
            "command": sys.argv,
            "config": config.to_dict(),
        }

    def write(self, out: Path) -> None:
        """Write all files. Raises RunDirError."""
        texts = to_json(self.record(), indent=1) + "\n", self._markdown(), self._latex()
        for name, text in zip(FILES, texts, strict=True):
            write_atomically(out / name, text, "choose another --out that is writable and has space")

    def _origin(self) -> str:
        return f"hpcgnn {versions()['hpcgnn']}, graph {self.first.graph_uuid}, {datetime.date.today()}"

    def _note(self) -> str:
        rounding = "" if not self.exact else " Rounding: the difference of that run from itself in float64."
        pyg = "" if self.pyg is None else " PyG: the user's model in one process, from that run in float64."
        return (
            f"Relative differences from the run at {_ranks([self.first])}: the largest of all losses, and norms of "
            f"vectors.{rounding}{pyg} Rows, gradients and messages: sent by all ranks in the last step"
        )

    def _markdown(self) -> str:
        command = " ".join(sys.argv)
        return f"{self.sentence()}.\n\n{self.table('pipe')}\n\n{self._note()}.\n\n{self._origin()}: `{command}`\n"

    def _latex(self) -> str:
        caption = latex(f"{self.sentence()}. {self._note()}. {self._origin()}.")
        table = self.table("latex_booktabs").replace("–", "--")
        return f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n{table}\n\\end{{table}}\n"


def _most(runs: Sequence[CertifiedRun]) -> float:
    """The largest difference of the losses from the first."""
    return max(of_losses(differences(each, runs[0])) for each in runs)


def _shown(difference: float) -> str:
    return f"{difference:.1e}" if difference else "0"


def _ranks(shapes: Sequence[CertifiedRun]) -> str:
    """'1 rank', '1, 2, 4 ranks', or '1, 4 × 2 ranks (× replicas)'."""
    texts = [str(each.shape).replace("x", " × ") for each in shapes]
    replicas = " (× replicas)" if any(each.shape.replicas > 1 for each in shapes) else ""
    return f"{', '.join(texts)} rank{'' if texts == ['1'] else 's'}{replicas}"
