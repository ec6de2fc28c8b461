"""Where a written adapter comes from, what was proven of it, and the check of both later."""
