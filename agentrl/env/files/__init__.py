"""Environments made from files that define no environment class: agent functions, and OpenRLHF's agents and rewards."""
