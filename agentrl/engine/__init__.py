"""Engines that sample tokens: the contract, vLLM, a scripted fake, and the wire that workers reach them by."""
