"""Records of a run on disk: its folder, ledger, trajectories, audit log, manifest and checkpoints."""
