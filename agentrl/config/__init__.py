"""Configuration of a run: the schema, loading and resolving it, the machine, the models."""
