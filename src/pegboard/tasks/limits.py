"""Limits that several modules of `tasks` share. Limits that an operator may change are in `Bounds`."""

TASK_TTL_S = 86_400.0  # seconds that a task is kept after its start, unless the config says otherwise
TASK_LOOK_S = 1.0  # seconds between two checks of a task that runs elsewhere
TASK_LEASE_S = 3.0  # seconds until other workers take over the tasks of a worker that has not renewed its lease
