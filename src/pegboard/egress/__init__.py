"""Egress: guarded access to HTTP servers, processes and files.

Import from the modules; nothing is loaded here, so that a catalog without network tools starts quickly.
"""
