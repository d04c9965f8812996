"""search: the engine beneath the meta tools. It ranks texts of tools, and knows neither views nor callers."""
