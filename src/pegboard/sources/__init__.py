"""sources: the kinds of tools that run elsewhere, one module or folder per kind, independent of each other."""
