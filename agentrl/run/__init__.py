"""One run: the loop, its ledger, its trajectories, its metrics, and what they add up to."""
