"""Text model: a language model of any provider, asked for one text; fills the port `Model`."""

from __future__ import annotations

from msgspec import Struct

from pegboard.model.agent import ModelSpec
from pegboard.models.language_models import LanguageModels


class TextModel(Struct, frozen=True, kw_only=True):
    """A model that completes text. It keeps no connection: a config that is loaded anew leaves none behind."""

    spec: ModelSpec

    async def complete(self, prompt: str, *, max_words: int) -> str:
        """Return what the model answers to the prompt.

        Raises:
            CallError: as `LanguageModels.complete`.
        """
        # A spec of a config has its key already.
        models = LanguageModels(lambda _: None)
        try:
            return await models.complete(self.spec, prompt)
        finally:
            await models.close()
