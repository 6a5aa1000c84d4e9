"""Code that runs inside a sandbox, sent over the channel at start, so that it contains no file of ours."""
