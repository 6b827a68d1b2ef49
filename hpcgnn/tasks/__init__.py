"""What is learned from labels: a file for each task, with its loss, its metrics and what it predicts."""
