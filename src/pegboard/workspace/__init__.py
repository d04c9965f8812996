"""workspace: the documents of each space: taken in, found, read and queried, within what a caller may see."""
