"""Attention over the prefix trees of a micro-batch: `tiles` on every device, `gathered` for flash attention on GPUs."""
