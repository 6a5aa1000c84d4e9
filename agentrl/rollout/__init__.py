"""Rollout: runs episodes, schedules them, and turns them into groups of trajectories."""
