"""Sources: read documents from folders, Git repositories, buckets and web sites."""
