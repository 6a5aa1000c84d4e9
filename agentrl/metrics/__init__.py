"""Step and evaluation records, trackers, statistics, the phase timer."""
