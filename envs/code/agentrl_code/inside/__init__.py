"""Code that runs inside the sandboxes."""
