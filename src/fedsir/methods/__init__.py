"""Methods: one class in one file each, found by name in `registry`; `base` is the protocol they share.

Beside NAME.py lie NAME_settings.py, which needs no torch, and, where a method has mathematics of its own, NAME_math.py.
"""
