"""All of Ray: its start and its nodes, the cluster of a run, and objects in processes of their own."""
