"""Simulation of a run from the records of another one: step time, staleness and idle share of a larger cluster."""
