/* Clears what gather_unit.h was given and defined, for the next instance. */
#undef HG_TAG
#undef HG_KIND
#undef HG_LANES
#undef HG_X
#undef HG_A
#undef HG_COLUMNS
#undef HG_VECTORS
#undef HG_TAGGED
