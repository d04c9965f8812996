"""The settings that every test shares: the event loop, the markers, no deadline a busy machine could miss."""

import pytest
from hypothesis import settings

MARKERS = {
    "shared": "reads the material in the folder that PEGBOARD_SHARED names (make test-shared)",
    "slow": "takes more than a few seconds",
    "soak": "runs for minutes (make soak)",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


settings.register_profile("pegboard", settings(), deadline=None)
settings.load_profile("pegboard")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
