"""builtin: the tools that come with Pegboard, each a small file of its own; `builtins` lists them."""
