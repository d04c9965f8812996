"""adapters: present a View as the tools of other frameworks; one module for each, independent of each other.

An adapter lists the View's tools and calls them through `view.call`. It adds no checks, filters or retries.
"""
