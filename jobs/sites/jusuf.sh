# shellcheck shell=bash
# JUSUF (Jülich, Germany). Written from its documentation, not run there: https://apps.fz-juelich.de/jsc/hps/jusuf/
. "$jobs/sites/jureca-dc.sh"

export SBATCH_PARTITION=batch
