"""parsing: parsers of all file formats. They run only in the children of the parser pool."""
