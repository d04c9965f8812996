"""search: the search engine behind the meta tools. It ranks texts of tools, and does not depend on views or callers."""
