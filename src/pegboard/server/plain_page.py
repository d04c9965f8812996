"""Plain page: the look of the small pages outside the console, which load nothing: their style is in the page."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Final

# The colors are those of the console.
STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: light-dark(#fbfaf7, #14161b); --board: light-dark(#f1ece1, #1a1d24); --card: light-dark(#fff, #1d2129);
  --ink: light-dark(#20242e, #e6e9f0); --dim: light-dark(#5a6070, #a0a8b8); --line: light-dark(#ddd8cc, #343a47);
  --edge: light-dark(#8b8678, #6d7689); --link: light-dark(#1d4fa3, #93b8f7); --fill: light-dark(#24508f, #3d68b3);
  --bad: light-dark(#a3231d, #ff9d92);
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, \
"Noto Sans", "DejaVu Sans", sans-serif; }
body { max-width: 46rem; margin: 0 auto; padding: 6vh 1rem 3rem; }
h1 { margin: 0 0 .8rem; font-size: 1.45rem; line-height: 1.25; overflow-wrap: anywhere; }
h1 small { font-size: .6em; font-weight: normal; color: var(--dim); }
h2 { margin: 1.5rem 0 .4rem; font-size: 1.02rem; }
p { margin: .6rem 0; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
a { color: var(--link); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code, pre { font-size: .88em; }
code { overflow-wrap: anywhere; }
pre { margin: .4rem 0; padding: .6rem .75rem; border-radius: 6px; background: var(--board); white-space: pre-wrap; \
overflow-wrap: anywhere; }
pre.copy { user-select: all; cursor: copy; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .3rem 1.2rem; margin: 1rem 0; \
padding: .9rem 1.1rem; border: 1px solid var(--line); border-radius: 10px; background: var(--card); }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
label { font-size: .88rem; color: var(--dim); }
.actions, .fields { display: flex; flex-wrap: wrap; align-items: end; gap: .6rem; margin: .8rem 0; }
.fields label { display: flex; flex-direction: column; gap: .15rem; }
.fields .grow { flex: 1 1 16rem; }
button, input:not([type=checkbox]), select { height: 2.4rem; padding: .3rem .9rem; border: 1px solid var(--edge); \
border-radius: 6px; font: inherit; color: var(--ink); background: var(--card); }
input:not([type=checkbox]), select { min-width: 0; padding: .3rem .55rem; }
button { cursor: pointer; }
button:hover:enabled { border-color: var(--ink); }
button:disabled { opacity: .55; cursor: default; }
button.main { font-weight: 600; color: #fff; background: var(--fill); border-color: var(--fill); }
button.danger { color: var(--bad); border-color: var(--bad); }
[role=alert] { padding: .5rem .75rem; border-left: 4px solid var(--bad); border-radius: 4px; background: var(--board); }
:focus-visible { outline: 2.5px solid var(--link); outline-offset: 2px; border-radius: 4px; }
"""


def source_of(text: str) -> str:
    """Return the source that allows exactly this style or script in a content security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


STYLE_SOURCE: Final = source_of(STYLE)
