"""What `inkling generate` was asked for (`asked`), and the doing of it (`run`).

The rest of the command line stays free of torch; `run` imports it inside its functions.
"""
