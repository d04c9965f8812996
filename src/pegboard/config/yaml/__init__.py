"""yaml: parse text to a tree with line numbers, expand the environment, and collect the problems of one load."""
