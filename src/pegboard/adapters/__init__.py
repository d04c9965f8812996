"""adapters: a View as the tools of the frameworks people already have; a module for each, and none knows another.

An adapter lists what the View lists and calls through `view.call`. It judges, filters and repeats nothing itself.
"""
