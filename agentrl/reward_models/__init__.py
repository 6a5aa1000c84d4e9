"""Reward models: a server for sequence-classification models, and the clients that turn scores into signals."""
