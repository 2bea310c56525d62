"""Many runs: sweeps, and finished runs side by side."""
