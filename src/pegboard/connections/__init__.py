"""connections: the accounts of people, and of this service, at the services behind sources."""
