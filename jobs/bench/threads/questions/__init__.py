"""The questions of jobs/bench/threads/threads.py: each module has configure(parser) and run(arguments)."""
