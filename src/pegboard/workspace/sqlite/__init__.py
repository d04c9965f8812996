"""sqlite: a document store in one file."""
