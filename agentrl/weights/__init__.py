"""Publication of new weights to the engines: staging, transfer, verification, the canary, and the Publisher."""
