"""Ray actors and processes: engines, rollout workers, learner ranks."""
