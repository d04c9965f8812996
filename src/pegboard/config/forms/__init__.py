"""forms: every key of pegboard.yaml, its valid values, and the errors for others. Keys of tools are in `kinds/`."""
