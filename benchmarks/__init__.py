"""Speed, memory and scale: `make bench`, or `python -m benchmarks NAME` for one. No test depends on these numbers."""
