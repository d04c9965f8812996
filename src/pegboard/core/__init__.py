"""core: the catalog, the judge and the guarded call; depends on no framework."""
