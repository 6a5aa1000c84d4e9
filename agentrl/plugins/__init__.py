"""Classes that others write, environments and algorithms: found by name, loaded, and explained when they fail."""
