"""sqlite: the documents of all spaces in one file."""
