"""parsing: what the files of each format say. Runs in the children of the parser pool, and nowhere else."""
