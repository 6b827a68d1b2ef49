"""`hpcgnn certify` from the checked request to the written certificate."""

import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcgnn.app.choosing_maps import find_map
from hpcgnn.comm.session import Session
from hpcgnn.config import Config
from hpcgnn.engine.rundir import start_logging
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.extras.certify.certificate import FILES, Certificate
from hpcgnn.extras.certify.command import CertifyRequest, Shape
from hpcgnn.extras.certify.measuring import CertifiedRun, Start, measure
from hpcgnn.extras.certify.pyg_model import PygModel, train_with_pyg
from hpcgnn.graphfile.refusals import no_map
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell

log = logging.getLogger("hpcgnn")
HOLDS, DIFFERS = 0, 1


def certify(config: Config, session: Session, request: CertifyRequest, remarks: Iterable[str] = ()) -> int:
    """Measure all shapes, and write the certificate. Collective. Returns the exit code. remarks: about options."""
    comm = session.comm
    start_logging(comm.rank)
    shapes = request.shapes_of(comm.size, config.data.replicas)
    name = f"certificates/{config.model.model}-{time.strftime('%Y%m%d-%H%M%S')}"
    out = Path(comm.broadcast_object(request.out or name))
    # A rate that falls with the epochs is that of a run of the usual length.
    config = config.replace(epochs=max(config.optim.epochs, request.steps), run_dir=str(out))
    found, start, model, pyg = list[CertifiedRun | None](), Start(), None, None
    with comm.together("looking at maps, --pyg and --out", on_one=True):
        if comm.rank == 0:
            for remark in remarks:
                log.info("%s", remark)
            check_maps(config, shapes)
            if request.pyg:
                with comm.heartbeat.computing():
                    model = PygModel(config, request.pyg)
            _make_folder(out, config, request.force)
    session.show_heartbeats(out)
    for shape in shapes:
        found.append(measure(config, session, shape, request.steps, None if found else start))
        if (last := found[-1]) is not None:
            log.info("ranks %s: %d steps, loss %.6g to %.6g", shape, request.steps, last.losses[0], last.losses[-1])
        if request.pyg and len(found) == 1:  # what does not fit is known before all shapes are trained
            with comm.together("training the model of PyG", on_one=True):
                if model is not None:
                    with comm.heartbeat.computing():
                        pyg = train_with_pyg(model, request.steps, start)
    exact = list[CertifiedRun | None]()
    if config.run.precision != "fp64":
        in_fp64 = config.replace(precision="fp64", halo_dtype="fp32")
        start |= comm.broadcast_object(dict(start))  # ranks that the first shape has not
        for shape in shapes:
            exact.append(measure(in_fp64, session, shape, request.steps, start))
    code = HOLDS
    with comm.together("writing the certificate", on_one=True):
        if comm.rank == 0:
            runs = [[each for each in some if each is not None] for some in (found, exact)]
            certificate = Certificate(runs[0], runs[1], pyg)
            with comm.heartbeat.storing():
                certificate.write(out)
            tell(certificate.table())
            tell(certificate.sentence())
            tell(f"certificate in {out}/: {', '.join(FILES)}")
            code = HOLDS if certificate.failure is None else DIFFERS
    return int(comm.broadcast_object(code))


def check_maps(config: Config, shapes: Sequence[Shape]) -> None:
    """Raise ConfigError or GraphError where the graph has no map, and can get none, for some of the shapes."""
    missing: dict[int, GraphError] = {}
    with GraphFile(config.data.graph) as file:
        for shape in shapes:
            try:
                find_map(file, config.replace(replicas=shape.replicas), shape.ranks)
            except GraphError as error:
                missing[shape.ranks // shape.replicas] = error
        if len(missing) == 1:
            raise next(iter(missing.values()))
        if missing:
            raise no_map(file.path, config.data.partition, file.partitionings(), *sorted(missing))


def _make_folder(out: Path, config: Config, force: bool) -> None:
    """Make the folder of the certificate. Raises ConfigError where its files may not be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make --out {out}: {error.strerror}; choose another one") from error
    places = {f"--out, {name.partition('.')[2]}:": out / name for name in FILES}
    check_outputs(places, [config.data.graph], force)
