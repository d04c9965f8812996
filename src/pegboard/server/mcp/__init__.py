"""The Model Context Protocol on a catalog: one dispatcher for both eras, and the ways to it over HTTP and stdio."""
