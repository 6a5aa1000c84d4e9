"""agentrl_sandbox: runs untrusted code. Imports the standard library only."""
