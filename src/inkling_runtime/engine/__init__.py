"""Running requests: sequences, what to compute next, the step itself, and sampling."""
