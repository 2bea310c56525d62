"""The paper: its numbers as data, a recipe for every cell of its tables and for its figures, ours beside theirs."""
