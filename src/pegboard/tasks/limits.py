"""Limits that several modules of `tasks` share. Those that an operator may change are in `Bounds`."""

TASK_TTL_S = 86_400.0  # that a task is kept, from its beginning, unless the config says otherwise
TASK_LOOK_S = 1.0  # between two looks at a task that runs elsewhere, for those who wait for it
TASK_LEASE_S = 3.0  # without which others go on with its tasks after this long
