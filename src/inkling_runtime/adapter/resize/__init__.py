"""Another rank for an adapter: the best approximation of every delta, without forming one."""
