"""model: the frozen records that pass between modules. Nothing here runs a tool or asks a judge."""
