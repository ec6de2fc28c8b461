"""What bench_generate.py is made of: models, the processes of both sides, rounds, the verdict."""
