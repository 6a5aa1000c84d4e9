"""The learner: a batch becomes new weights."""
