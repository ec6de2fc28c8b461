"""Change of dialect with the effect unchanged: adapter → plan → write."""
