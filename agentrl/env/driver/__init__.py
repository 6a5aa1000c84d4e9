"""What drives the author's object: nobody outside agentrl imports it."""
