"""builtin: the tools that come with Pegboard, each in its own small file; `builtins` lists them."""
