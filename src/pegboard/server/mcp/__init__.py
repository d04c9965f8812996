"""The Model Context Protocol for a catalog: one dispatcher for both eras, served over HTTP and stdio."""
