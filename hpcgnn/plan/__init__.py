"""Rules between options, and the plan of a run on a graph. Pure: no file is read and no message is sent."""
