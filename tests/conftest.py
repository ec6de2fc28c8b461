"""What all test folders share. Its presence puts `tests/` on the path: `import factories`."""
