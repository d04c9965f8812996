"""Limits that several modules of `consent` share. Those that an operator may change are in `Bounds`."""

CONSENT_STORE_BUSY_S = 2.0  # that an answer waits for the store, before it is not taken
CONSENT_GOOD_S = 3_600.0  # that a yes to one call is good
CONSENT_DECLINED_S = 86_400.0  # that a no is remembered in its session
CONSENT_GRANT_S = 31 * 86_400.0  # that a grant lasts at most
CONSENT_GRANT_CALLS = 10_000  # and the calls that it allows at most
