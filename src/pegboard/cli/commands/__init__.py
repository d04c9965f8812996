"""commands: one file each, loaded when it is used."""
