"""Limits that several modules of `consent` share."""

CONSENT_STORE_BUSY_S = 2.0  # seconds that an answer waits for the store before it is refused
CONSENT_GOOD_S = 3_600.0  # how long the approval of one call is valid, in seconds
CONSENT_DECLINED_S = 86_400.0  # how long a refusal is remembered in its session, in seconds
CONSENT_REASON_CHARS = 500  # of the reason that a person gives for declining
CONSENT_GRANT_S = 31 * 86_400.0  # the longest lifetime of a grant, in seconds
CONSENT_GRANT_CALLS = 10_000  # the most calls that a grant allows
