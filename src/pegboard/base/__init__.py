"""base: what everything is said with (records, errors, names, judged JSON, bounded waits); knows no catalog."""
