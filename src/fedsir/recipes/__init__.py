"""Settings that come with fedsir, one TOML file a recipe; read by `fedsir.runs.recipes`."""
