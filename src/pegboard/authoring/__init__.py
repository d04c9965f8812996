"""authoring: turns Python functions, classes and builders into entries of the catalog."""
