"""forget: delete what is stored about a person, and replace the name in the audit by a pseudonym."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import find_config
from pegboard.cli.recorded_change import note_change
from pegboard.cli.terminal import Column
from pegboard.config import load
from pegboard.config.personal_data import Forgotten, forget, person_named, personal_records, retained_records
from pegboard.extras import needs_package
from pegboard.model.error import DefinitionError
from pegboard.storage.store_error import StoreError

_PREFIX = "user:"
_WHO = "The person, as user:NAME."
_YES = "Delete; without it, only show what would be deleted."
_COLUMNS = (Column(head="Store", style="bold"), Column(head="What"), Column(head="Number"))


def forget_command(
    who: Annotated[str, Parameter(help=_WHO)],
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help=_YES, negative=())] = False,
    options: SharedOptions,
) -> Exit:
    """Delete a person's conversations, consents, grants and connected accounts, and the names in the audit.

    Without --yes nothing is changed. What is kept is listed.
    """
    user = who.removeprefix(_PREFIX)
    if not who.startswith(_PREFIX) or not user:
        raise CommandError(f"{who!r} is not a person. Write user:NAME, such as `pegboard forget user:ann`.")
    config = load(find_config(options.config, start=Path.cwd()), env=os.environ)
    person, rows = person_named(user, config), list[Forgotten]()
    try:
        for row in forget(config, person) if yes else personal_records(config, person):
            rows.append(row)
        kept = list(retained_records(config, person))
    except ImportError as error:
        raise CommandError(needs_package(error.name, "postgres"), kind="store_refused", code=Exit.REFUSED) from None
    except (StoreError, DefinitionError, OSError) as error:
        done = f" Done before: {', '.join(dict.fromkeys(row.store for row in rows))}." if yes and rows else ""
        raise CommandError(f"{error}.{done}", kind="store_refused", code=Exit.REFUSED) from None
    if yes:
        counts = {f"{row.store}: {row.what}": row.count for row in rows if row.count}
        note_change(config, options.terminal, "user_forgotten", {"pseudonym": person.pseudonym, "records": counts})
    if options.json:
        listed = [{"store": row.store, "what": row.what, "count": row.count} for row in rows]
        pseudonym = {"pseudonym": person.pseudonym} if yes else {}
        options.terminal.json({"user": user, "is_done": yes, **pseudonym, "records": listed, "kept": kept})
        return Exit.DONE
    options.terminal.table(_COLUMNS, [[row.store, row.what, str(row.count)] for row in rows])
    options.terminal.say("\nKept:")
    for text in kept:
        options.terminal.say(f"* {text}")
    if yes:
        options.terminal.say(f"\n{user!r} is forgotten. In the audit the name is now {person.pseudonym!r}.")
    else:
        options.terminal.say(f"\nNothing was changed. To delete this for good: pegboard forget {who} --yes")
    return Exit.DONE
