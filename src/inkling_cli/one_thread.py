"""How many threads numpy's linear algebra may use, said before numpy is imported."""

import os


def use_one_thread() -> None:
    """Keep each product and decomposition on one thread, unless the user's environment says other.

    Those of this program are many and small. OpenBLAS's threads wait for one another by spinning:
    measured on short blocks of rank 64 and above, they cost twice to ten times what they save.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
