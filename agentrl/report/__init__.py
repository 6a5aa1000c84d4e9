"""What people read: the HTML report, the terminal, `agentrl show`, the summary."""
