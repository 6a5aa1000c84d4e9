"""What a run keeps on disk: its folder, the ledger, trajectories, the audit log, checkpoints."""
