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
        "write": Action("Pin the tools of new servers, and remove servers that are gone.", "pegboard lock"),
        "diff": Action("Show what changed since the tools were pinned.", "pegboard lock diff files"),
        "accept": Action("Accept the current definitions of tools.", "pegboard lock accept files.read_file"),
    },
    "connections": {
        "ls": Action("List the connections of people, without their tokens.", "pegboard connections ls --user ann"),
        "show": Action("Print a connection, without its tokens.", "pegboard connections show github --user ann"),
        "disconnect": Action(
            "Delete a connection, and revoke its tokens at the issuer.",
            "pegboard connections disconnect github --user ann",
        ),
    },
    "consent": {
        "ls": Action("List the open questions, and the accounts that calls wait for.", "pegboard consent ls --all"),
        "show": Action("Print a question, answer or grant in full.", "pegboard consent show ID"),
        "approve": Action(
            "Approve a question: the call runs once when its caller repeats it.",
            "pegboard consent approve ID --for 12h",
        ),
        "deny": Action(
            "Deny a question: the same call is refused for the rest of the session.",
            'pegboard consent deny ID --reason "The order is sent."',
        ),
        "grant": Action("Allow several calls in advance.", "pegboard consent grant ID --calls 20 --for 7d --same city"),
        "forget": Action("Remove an answer or a grant.", "pegboard consent forget ID"),
    },
    "tasks": {
        "ls": Action("List the tasks of all callers, newest first.", "pegboard tasks"),
        "show": Action("Print a task with its result.", "pegboard tasks show ID"),
        "cancel": Action("Cancel a task.", "pegboard tasks cancel ID"),
        "resume": Action("Run a task that no worker has to its end, in this process.", "pegboard tasks resume ID"),
    },
    "keys": {
        "ls": Action("List the names and states of the keys.", "pegboard keys"),
        "add": Action("Create a key and show it once.", "pegboard keys add ann-laptop --days 90"),
        "rotate": Action(
            "Create a key that replaces another, and show it once.", "pegboard keys rotate ann-laptop --overlap 24h"
        ),
        "revoke": Action(
            "Revoke a key: its callers are refused from the next request on.", "pegboard keys revoke ann-laptop"
        ),
    },
    "audit": {
        "ls": Action("List the newest rows, the newest first.", "pegboard audit ls --tool refund --since 1d"),
        "show": Action("Print the rows of a call in full.", "pegboard audit show ID"),
        "follow": Action("Print rows as they are written.", "pegboard audit follow --kind rate_limited"),
        "verify": Action("Check that no row was changed, removed or added.", "pegboard audit verify"),
        "export": Action("Print rows as JSON, one a line, the oldest first.", "pegboard audit export --since 7d"),
        "head": Action("Print the signed end of each chain, to keep elsewhere.", "pegboard audit head"),
        "prune": Action("Delete rows that are older than a time.", "pegboard audit prune --older-than 400d"),
    },
    "store": {
        "backup": Action(
            "Copy every SQLite store into a folder, even while the server runs.", "pegboard store backup backups/monday"
        ),
        "restore": Action(
            "Restore the copies from a folder. Stop the server first.",
            "pegboard store restore backups/monday --overwrite",
        ),
        "migrate": Action(
            "Migrate every store to this version of Pegboard, and show the versions.",
            "pegboard store migrate --dry-run",
        ),
    },
    "workspace": {
        "ls": Action(
            "List document sources and who may use which space, or the documents of a source.",
            "pegboard workspace ls s1 handbook",
        ),
        "show": Action("Show a document, or its text.", "pegboard workspace show s1 handbook leave.md --text"),
        "put": Action("Store a file as a document.", "pegboard workspace put s1 handbook leave.md ./leave.md"),
        "rm": Action(
            "Remove a source with its documents, or one document.", "pegboard workspace rm s1 handbook leave.md"
        ),
        "stats": Action("Show the size of each space.", "pegboard workspace stats"),
        "embed": Action("Compute the vectors of passages that have none.", "pegboard workspace embed"),
        "fetch-model": Action(
            "Download the models of embedders with `type: fastembed`.", "pegboard workspace fetch-model"
        ),
        "grant": Action("Give a user or role access to a space.", "pegboard workspace grant user:ann s1 write"),
        "revoke": Action("Withdraw access to a space.", "pegboard workspace revoke user:ann s1"),
    },
}
# The action of a command without one. `pegboard store` does not have a default: each of its actions writes.
DEFAULT_ACTIONS = {
    "lock": "write",
    "connections": "ls",
    "consent": "ls",
    "tasks": "ls",
    "keys": "ls",
    "audit": "ls",
    "workspace": "ls",
}
