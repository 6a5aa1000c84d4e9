"""Plans: what a run needs and what it reaches on other hardware, before it starts there."""
