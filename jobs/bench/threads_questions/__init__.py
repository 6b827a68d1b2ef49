"""The questions of jobs/bench/threads.py: each module has configure(parser) and run(arguments)."""
