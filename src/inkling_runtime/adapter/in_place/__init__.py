"""Conversions that move no payload: the header rewritten where it lies, and the way back.

Not for a folder that a server has open: the bytes of the file move under it.
"""
