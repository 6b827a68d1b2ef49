"""What `threads.py` counts: a module for each question, with HELP, `add_options(parser)` and `run(options)`."""
