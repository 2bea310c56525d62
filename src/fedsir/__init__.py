"""fedsir: federated learning when some clients' labels are wrong."""

__version__ = "0.1.0"
