"""Parts that several benches share: jobs that are launched, memory that is watched, configurations."""
