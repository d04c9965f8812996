"""Egress: the guarded ways out, one for HTTP, one for processes, one for files.

Import from the modules; nothing is loaded here, so that a catalog without network tools stays light.
"""
