"""yaml: from text to a tree that knows its lines, the environment put in, and the problems of one load."""
