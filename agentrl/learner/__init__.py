"""The learner turns batches into new weights."""
