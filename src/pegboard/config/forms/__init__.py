"""forms: every key of pegboard.yaml, what may stand there, and what is refused. The keys of tools are in `kinds/`."""
