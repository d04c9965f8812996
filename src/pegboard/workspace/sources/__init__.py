"""Sources: where documents come from: folders, Git repositories, buckets and web sites."""
