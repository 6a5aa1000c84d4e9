"""The container image of the docker backend, from this machine's Python and shell: no registry is needed."""
