"""How to read each figure: its axes, the better direction, and the meaning of the dotted lines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcgnn.report.study import Study


REPEATED = "Lines are medians over repetitions, bars or bands reach from the least to the most."


def caption(name: str, study: "Study") -> str:
    """The text below the figure of this name, for those who were not there when it was made."""
    ideal = {
        "strong": "as many times less as there are more ranks",
        "weak": "the same on any number of ranks, each of which has as much work",
        "none": "",
    }[study.mode]
    dotted = f" The dotted line is the ideal: {ideal}." if ideal else ""
    better = " or ".join(sorted({run.summary.get("better", "higher") for run in study.runs}))
    text = CAPTIONS[name].format(
        dotted=dotted,
        repeated=REPEATED,
        metric=" or ".join(sorted({run.summary["metric"] for run in study.runs})),
        Better=better.capitalize(),
        up={"higher": "up", "lower": "down"}.get(better, "to the better side"),
        speedup="time on the fewest ranks of a curve / time"
        if study.mode != "weak"
        else "ranks × time on the fewest ranks of a curve / time, since the work grows with the ranks",
        efficiency="speed-up / ranks, in % of the fewest ranks of each curve, which count as 100"
        if study.mode != "weak"
        else "time on the fewest ranks of each curve / time, in %",
    )
    return " ".join(text.split())


CAPTIONS = {
    "epoch_time": "Across: MPI ranks. Up: seconds of an epoch on the slowest rank, without evaluation; both axes are "
    "logarithmic. Lower is better.{dotted} {repeated}",
    "speedup": "Across: MPI ranks. Up: speed-up, which is {speedup}; both axes are logarithmic to base 2. Higher "
    "is better. "
    "The dotted diagonal is the ideal, twice as fast on twice the ranks; below 1 more ranks are slower.",
    "efficiency": "Across: MPI ranks. Up: parallel efficiency, which is {efficiency}. Higher is better; the "
    "dotted line at "
    "100 % is the ideal.",
    "memory": "Across: MPI ranks. Up: memory that training adds to the largest rank, over what was resident when "
    "the graph "
    "was loaded (training_growth_bytes); both axes are logarithmic. Lower is better.{dotted} {repeated}",
    "bytes": "Across: MPI ranks. Up: what all ranks together send in one epoch of training, without evaluation. "
    "Lower is "
    "better; one rank sends nothing.",
    "imbalance": "A group of bars for each number of ranks; the height is what the largest rank has over the "
    "mean of the "
    "ranks. 1, the dotted line, is perfect balance; 1.1 means that the largest rank has 10 % more than the mean.",
    "breakdown": "A bar for each number of ranks, as high as an epoch takes in milliseconds; shorter is better. "
    "The parts "
    "are means over ranks, in the order of the legend from the bottom up; the topmost is what the slowest rank took "
    "above the mean.",
    "loss": "Across: epochs, from 1. Up: mean loss over the training nodes, with dropout. Lower is better. "
    "{repeated} An "
    "exact schedule has the same curve on any number of ranks; curves that coincide show their dashes in turn.",
    "validation": "Across: epochs, from 1. Up: {metric} of the validation nodes. {Better} is better. {repeated}",
    "accuracy_bytes": "Across: what all ranks have sent for training since the start, logarithmic. Up: the best "
    "validation "
    "{metric} until then. Further {up} and further left is better: more for fewer bytes. One rank sends "
    "nothing and is not shown. {repeated}",
    "accuracy_seconds": "Across: seconds that training has taken until then on the slowest rank, without evaluation, "
    "logarithmic. Up: the best validation {metric} until then. Further {up} and further left is better. {repeated}",
    "memory_phases": "Across: MPI ranks. Up: high-water mark of the resident memory of the largest rank in each phase, "
    "above what the process held before it read the graph; both axes are logarithmic. Lower is better.{dotted} "
    "Black signs are the highest phase of other curves.",
    "memory_account": "A bar for each number of ranks: what is known to be resident on the largest rank in the "
    "phase of "
    "training with the highest mark, item by item, above what the process held before it read the graph. The black "
    "line is what the kernel measured: the nearer the bar comes to it, the more is explained. The hatched white "
    "part is memory that other phases of a step use and that the program keeps meanwhile; nothing is stored there "
    "at that moment.",
}
