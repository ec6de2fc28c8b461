"""The options of each engine's server command: tables, and what they mean."""
