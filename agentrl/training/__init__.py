"""The training loop and the ways into it: train, resume, evaluate."""
