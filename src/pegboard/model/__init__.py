"""model: the frozen records that pass between modules. This package runs no tools and makes no decisions."""
