"""A tier under fire: tierers that are killed at their calls, beside writers, readers, a tail, truncations and a vacuum."""
