"""What is done about the halo, and how the ranks' parameters are kept together."""
