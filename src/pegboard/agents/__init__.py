"""Agents: what runs them, on the tools that each may use."""
