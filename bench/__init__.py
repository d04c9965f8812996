"""bench: what Pegboard costs beside a floor and beside its peers. `make bench` writes RESULTS.md."""
