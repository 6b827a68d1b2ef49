"""hpcgnn for Spack, from sources that are packed into this folder; docs/installing.md has the commands."""

import os

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpcgnn(PythonPackage):
    """Trains graph neural networks full-batch on whole, very large graphs, on CPUs, with MPI ranks whose memory falls
    with their number."""

    # Imported by Spack after the installation: the last fails where the kernels were not compiled.
    import_modules = ["hpcgnn", "partition_tools", "hpcgnn.kernels.library"]

    url = "file://" + os.path.join(os.path.dirname(os.path.abspath(__file__)), "hpcgnn-0.4.0.tar.gz")

    license("Apache-2.0")

    # No checksum: the sources are packed from a checkout, `spack install --no-checksum`.
    version("0.4.0")

    variant("plot", default=True, description="curves.png, and the tables and figures of `hpcgnn report`")

    depends_on("c", type="build")  # the kernels, with OpenMP
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-wheel", type="build")
    depends_on("mpi")
    depends_on("py-h5py@3.10:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-pymetis@2025.2:", type=("build", "run"))
    depends_on("py-scipy@1.11.1:", type=("build", "run"))
    depends_on("py-tabulate@0.9:", type=("build", "run"))
    depends_on("py-tomli-w@1.0:", type=("build", "run"))
    depends_on("py-torch@2.6:", type=("build", "run"))
    depends_on("py-tqdm@4.66:", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", type=("build", "run"), when="+plot")
    depends_on("py-pandas@2.1:", type=("build", "run"), when="+plot")
    depends_on("py-jinja2@3.1:", type=("build", "run"), when="+plot")
