"""authoring: tools that are written in Python, as entries of the catalog."""
