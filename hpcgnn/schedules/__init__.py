"""How ranks treat the halo, and how they keep their parameters together."""
