"""Limits that several modules of `connections` share."""

from pegboard.model.bounds import KIB

FLOW_S = 600.0  # how long a link to connect is valid, in seconds
OPEN_FLOWS = 100  # valid links of one person
ISSUER_REQUEST_S = 10.0  # seconds for one request to an issuer
ISSUER_ANSWER_BYTES = 256 * KIB  # bytes of one answer of an issuer
# How long one worker alone may refresh a token, and tries to store the new one if the store does not answer.
REFRESH_LEASE_S = 30.0
REFRESH_POLL_S = 0.05  # seconds between two looks at a token that another worker refreshes
TOKEN_KEPT_S = 1.0  # how long a worker uses a token without reading the store again, in seconds
KEPT_TOKENS = 10_000  # tokens that a worker keeps for that time
RENEW_EARLY_S = 30.0  # a token is refreshed so many seconds before its expiry
FRESH_TOKEN_S = 5.0  # how long after a refresh a refused token is not refreshed again, in seconds
REFUSAL_KEPT_S = 5.0  # how long an issuer that refused a token is not asked for it again, in seconds
ISSUER_KEPT_S = 300.0  # how long the metadata of an issuer are used before they are read again, in seconds
CONNECTION_STORE_BUSY_S = 10.0  # seconds to wait for another process that holds the store
CONNECTIONS_LISTED = 1_000  # connections in one list
CLOSING_S = 5.0  # seconds that closing waits for refreshes whose tokens are not stored yet
