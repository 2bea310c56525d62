"""Methods: one class in one file each, found by name in `registry`; `base` is the protocol they share.

A method's mathematics, where it has its own, lies beside it in NAME_math.py. Settings need no torch, so they are apart:
what all methods have in `settings`, FedSIR's in `fedsir_settings`, those of the methods it is compared with in
`baseline_settings`.
"""
