"""Declarations: convert other programs' files to entries of a config; one module per format."""
