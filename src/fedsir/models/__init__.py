"""Models: what they are called, how they are built, and their weights."""
