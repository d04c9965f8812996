"""Planning: what a changed config gives and takes, and who reaches which tool."""
