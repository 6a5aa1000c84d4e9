"""vLLM as an Engine: one AsyncLLM in this process, its EngineCore in a child.

Importing this package does not import vllm, which reads its environment when it is imported.
"""
