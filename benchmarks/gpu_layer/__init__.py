"""The parts of `gpu.py`: one layer of Inkling's real size, what is checked and timed of it."""
