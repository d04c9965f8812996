"""Declarations: what people have elsewhere, read into entries of a config; a module for each form."""
