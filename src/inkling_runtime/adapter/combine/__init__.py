"""Several adapters as one: a weighted sum of their deltas, rank beside rank."""
