"""Pictures of results: pure functions from numbers to files' contents."""
