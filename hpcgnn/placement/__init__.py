"""Which nodes a rank owns, and in which order it keeps them."""
