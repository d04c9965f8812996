"""Tasks: calls that outlive their request, on an engine that keeps them in memory or in a database."""
