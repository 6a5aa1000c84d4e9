"""Loss terms: pure functions on tensors."""
