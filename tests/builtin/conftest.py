from tests.builtin.database import postgres_url

__all__ = ["postgres_url"]
