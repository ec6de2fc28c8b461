"""The arguments of every kernel, as the C++ sources declare them.

A kernel exists once per dtype, as `<name>_f32` and `<name>_bf16`. The letters: `p` an address or
None, `i` an int64, `f` a float. The last argument of a kernel with a parallel region is its number
of threads.
"""

import ctypes

LETTERS = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}

DTYPES = ("f32", "bf16")

SIGNATURES: dict[str, str] = {
    "linear": "pi pp iii pip i",
    "experts": "pi ppp ppp ii ii pipi ii pp p i",
    "qkvr_prologue": "pi iiii pp i pp pp f p pp pp ppppp ii i",
    "relative_attention": "ppppp pppp iiiiiiiii ff p i",
    "rms_norm": "ppppp ii f i",
    "route_tokens": "pppp iiiii f ppp i",
    "short_conv": "pi p p ppppp iiii pp i",
}
"""Letters in groups for the eye; spaces mean nothing."""


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the arguments of every kernel.

    Raises:
        AttributeError: the library lacks a kernel.
    """
    for name, letters in SIGNATURES.items():
        for dtype in DTYPES:
            kernel = getattr(library, f"{name}_{dtype}")
            kernel.argtypes = [LETTERS[letter] for letter in letters.replace(" ", "")]
            kernel.restype = None
