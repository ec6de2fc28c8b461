"""Texts of every kind → `Launch`. No I/O: `launch/read.py` fetches the text."""
