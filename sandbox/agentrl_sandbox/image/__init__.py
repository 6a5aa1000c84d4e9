"""Container image of the docker backend, made from this machine's Python and shell without a registry."""
