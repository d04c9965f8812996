"""console: the pages for people in a browser: the board, the tools, what waits for a decision."""
