"""Tasks: calls that outlive their request, on an engine that stores them in memory or in a database."""
