"""The error of a text that is no launch, told apart from a launch that is malformed."""

from inkling_runtime.errors import InklingError


class NoLaunchError(InklingError):
    """A text that starts no server, or does not tell which.

    Where many files are looked through (`--skip-others`), such a file is passed over; one that
    cannot be read is an error all the same.
    """
