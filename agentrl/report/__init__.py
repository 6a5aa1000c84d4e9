"""For people and other tools: HTML report, terminal, `agentrl show`, summary, `Run` and export."""
