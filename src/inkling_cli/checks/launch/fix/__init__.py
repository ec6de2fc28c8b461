"""Findings of a launch → the corrected text, and writing it."""
