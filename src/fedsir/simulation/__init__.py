"""The loop: a method, a federation and a model, round by round. Knows no disk and no terminal."""
