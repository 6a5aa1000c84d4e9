"""Checks of an environment, for `agentrl env check`: what each asks, and what is wrong. Only the command imports it."""
