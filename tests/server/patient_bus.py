"""A patient bus: workers wait for each other, and for their store, as long as a busy machine may take."""

import pytest

from tests.timing import PATIENCE_S

# For the module of a served config.
PATIENT_BUS = f"""
from pegboard.server import bus, redis_transport
from pegboard.server.mcp.sessions import shared_sessions

bus.BUS_ANSWER_S = shared_sessions.BUS_ANSWER_S = redis_transport.BUS_SOCKET_S = {PATIENCE_S}
"""


@pytest.fixture
def patient_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers in this process wait for a minute where they usually wait for a second or two."""
    from pegboard.server import bus, postgres_transport, redis_transport
    from pegboard.server.mcp.sessions import shared_sessions

    for module in (bus, shared_sessions):
        monkeypatch.setattr(module, "BUS_ANSWER_S", PATIENCE_S)
    for module in (postgres_transport, redis_transport):
        monkeypatch.setattr(module, "BUS_SOCKET_S", PATIENCE_S)
