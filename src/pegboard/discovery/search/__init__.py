"""search: the search engine beneath the meta tools."""
