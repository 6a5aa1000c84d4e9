"""What runs inside the sandboxes."""
