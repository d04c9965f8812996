"""Actions: the commands below a command, such as `pegboard consent deny`, each with its own arguments and help.

The function of `pegboard consent deny` is `deny_command` in `commands/consent.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """The first line of the docstring of an action's function, and an example."""

    summary: str
    example: str


ACTIONS = {
    "lock": {
        "write": Action("Pin the tools of servers that are new, and forget servers that are gone.", "pegboard lock"),
        "diff": Action("Show what changed since the tools were pinned.", "pegboard lock diff files"),
        "accept": Action("Accept the tools as their servers define them now.", "pegboard lock accept files.read_file"),
    },
    "consent": {
        "ls": Action("List the questions that wait for a person.", "pegboard consent ls --all"),
        "show": Action("Print a question, answer or grant in full.", "pegboard consent show ID"),
        "approve": Action(
            "Say yes to a question: the same call passes once, if its caller makes it again.",
            "pegboard consent approve ID --for 12h",
        ),
        "deny": Action(
            "Say no to a question: its caller is not asked again in this session.", "pegboard consent deny ID"
        ),
        "grant": Action("Allow several calls in advance.", "pegboard consent grant ID --calls 20 --for 7d --same city"),
        "forget": Action("Take an answer or a grant back.", "pegboard consent forget ID"),
    },
    "tasks": {
        "ls": Action("List the tasks of all callers, the newest first.", "pegboard tasks"),
        "show": Action("Print a task with its result.", "pegboard tasks show ID"),
        "cancel": Action("End a task.", "pegboard tasks cancel ID"),
        "resume": Action("Run a task that no living worker has, here and to its end.", "pegboard tasks resume ID"),
    },
    "keys": {
        "ls": Action("List the keys, without the keys themselves.", "pegboard keys"),
        "add": Action("Make a key and show it once.", "pegboard keys add ann-laptop --days 90"),
        "rotate": Action(
            "Make a key that replaces another, and show it once.", "pegboard keys rotate ann-laptop --overlap 24h"
        ),
        "revoke": Action(
            "End a key: its callers are refused from the next request on.", "pegboard keys revoke ann-laptop"
        ),
    },
    "store": {
        "backup": Action(
            "Copy every SQLite store into a folder, also while the server runs.", "pegboard store backup backups/monday"
        ),
        "restore": Action(
            "Put the copies of a folder back. Stop the server first.",
            "pegboard store restore backups/monday --overwrite",
        ),
        "migrate": Action(
            "Bring every store to the version of this Pegboard, and show the versions.",
            "pegboard store migrate --dry-run",
        ),
    },
    "workspace": {
        "ls": Action("List the sources of documents, and who may use which space.", "pegboard workspace ls s1"),
        "rm": Action("Remove a source with its documents.", "pegboard workspace rm s1 handbook"),
        "stats": Action("Show how much each space holds.", "pegboard workspace stats"),
        "embed": Action("Compute the vectors of passages that have none.", "pegboard workspace embed"),
        "fetch-model": Action(
            "Download the models of embedders with `type: fastembed`.", "pegboard workspace fetch-model"
        ),
        "grant": Action("Let somebody use a space.", "pegboard workspace grant user:ann s1 write"),
        "revoke": Action("Take the right to use a space back.", "pegboard workspace revoke user:ann s1"),
    },
}
# The action of a command without one. `pegboard store` does not have a default: each of its actions writes.
DEFAULT_ACTIONS = {"lock": "write", "consent": "ls", "tasks": "ls", "keys": "ls", "workspace": "ls"}
