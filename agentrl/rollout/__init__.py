"""A task becomes a Trajectory: renderer, episode, recorder, worker, scheduler."""
