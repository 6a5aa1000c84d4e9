"""What runs inside a sandbox: sent over the channel at start, so that no file of ours lies in there."""
