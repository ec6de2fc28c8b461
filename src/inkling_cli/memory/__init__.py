"""How much memory a launch takes, from config.json and numbers alone: no GPU, no I/O."""
