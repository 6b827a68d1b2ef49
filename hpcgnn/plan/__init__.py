"""What goes with what: rules between options, and the plan of a run on a graph. Pure: nothing is read or sent."""
