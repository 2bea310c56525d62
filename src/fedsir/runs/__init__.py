"""One run on disk: settings, recipes, run folder, checkpoint, progress, result."""
