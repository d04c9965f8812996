"""auth: verifies credentials and maps them to rights. Independent of the server, which passes tokens in."""
