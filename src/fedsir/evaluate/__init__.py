"""How good a run was: test accuracy, client identification, label repair. Ground truth is used here alone."""
