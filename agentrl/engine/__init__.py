"""Tokens in, tokens out: the Engine contract, the real engine (vllm.py), the shipped fake, and the client of both."""
