"""Text model: a language model of any provider for text completion; implements the port `Model`."""

from __future__ import annotations

from msgspec import Struct

from pegboard.model.agent import ModelSpec
from pegboard.models.language_models import LanguageModels


class TextModel(Struct, frozen=True, kw_only=True):
    """A model that completes text. It keeps no connections, so nothing remains after a reload of the config."""

    spec: ModelSpec

    async def complete(self, prompt: str, *, max_words: int) -> str:
        """Return the model's answer to the prompt.

        Raises:
            CallError: as `LanguageModels.complete`.
        """
        # A spec from a config already has its key.
        models = LanguageModels(lambda _: None)
        try:
            return await models.complete(self.spec, prompt)
        finally:
            await models.close()
