"""Agents: runs agents with the tools that they may use."""
