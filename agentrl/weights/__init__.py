"""New weights reach the engines: staging, transfer, verification, the canary and the publication that orders them."""
