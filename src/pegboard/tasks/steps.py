"""TaskSteps: the named steps of one task, in order, each recorded once; and its questions to a person."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pegboard.core.elicitation_form import form_of
from pegboard.core.redaction import Redactor
from pegboard.model.attempts import attempted
from pegboard.model.bounds import MIB
from pegboard.model.call_context import same_step
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.task import Question
from pegboard.tasks.engine import Journal
from pegboard.tasks.places import Place
from pegboard.tasks.records import error_of_json, error_to_json

STEP_RESULT_BYTES = 1 * MIB  # bytes of one step's result as JSON

log = logging.getLogger("pegboard")


class TaskSteps:
    """The durable part of the call that a task runs. Implements the port `StepRunner`.

    Args:
        task_id: the task.
        call_id: the call.
        journal: stores results.
        timeout_s: of each attempt of a step that sets none.
        redactor: knows the secrets that must not be stored.
        look_again: checks again whether the task may continue; raises `CallError` if not.
        place: the place of the run, which is freed while it waits for a person.
    """

    def __init__(
        self, task_id: str, call_id: str, journal: Journal, *, timeout_s: float | None, redactor: Redactor | None,
        look_again: Callable[[], Awaitable[None]], place: Place,
    ) -> None:  # fmt: skip
        self.task_id, self.call_id = task_id, call_id
        self._journal, self._timeout_s, self._redactor = journal, timeout_s, redactor
        self._look_again, self._place = look_again, place
        self._names: set[str] = set()
        self._asked = 0
        self.has_run = False
        """Whether the call passed every guard and its tool ran."""
        self.refusal: CallError | None = None
        """Why the task may not continue, even if its tool catches the error."""

    @property
    def is_moving(self) -> bool:
        """Whether the run was stopped although the task continues, in another worker or later."""
        return self._journal.is_moving

    async def step(
        self,
        name: str,
        run: Callable[..., object],
        args: tuple[object, ...],
        *,
        retries: int,
        timeout_s: float | None,
    ) -> object:
        """Return the recorded result of a step, or run the step if there is none."""
        await self._end_if_forbidden()
        if name in self._names:
            raise CallError("tool_error", same_step(name))
        self._names.add(name)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        causes: list[BaseException] = []
        work = partial(self._work, name, run, args, retries=retries, timeout_s=limit_s, causes=causes)
        async with self._place.for_step():
            recorded = await self._journal.once(name, work)
        if "error" in recorded:
            raised = CallError("tool_error", "")
            raised.error = error_of_json(recorded["error"])
            raised.args = (raised.error.message,)
            raise raised from (causes[0] if causes else None)
        return recorded["value"]

    async def _work(
        self, name: str, run: Callable[..., Any], args: tuple[object, ...], *, retries: int, timeout_s: float | None,
        causes: list[BaseException],
    ) -> JSON:  # fmt: skip
        try:
            value = await attempted(
                name, run, args, retries=retries, timeout_s=timeout_s, check=_nothing, of=self.task_id
            )
            return {"value": self._storable(name, value)}
        except CallError as error:
            causes.append(error)
            return {"error": error_to_json(error.error)}
        except Exception as error:  # boundary: foreign code; its text is not shown to models
            causes.append(error)
            log.error("Step %r of task %s failed.", name, self.task_id, exc_info=error)
            failed = CallError("tool_error", f"Step {name!r} failed (task {self.task_id}).", outcome_unknown=True)
            return {"error": error_to_json(failed.error)}

    def _storable(self, name: str, value: object) -> JSONValue:
        """Return a result as it would be read from the journal, so that the first run sees the same as a later one."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            text = (
                f"Step {name!r} returned a value that is not JSON: {error}. Return objects, lists, strings or numbers."
            )
            raise CallError("tool_error", text, outcome_unknown=True) from None
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > STEP_RESULT_BYTES:
            text = (
                f"Step {name!r} returned {size} bytes, and {STEP_RESULT_BYTES} can be stored. Store the data "
                "elsewhere, and return a reference to it."
            )
            raise CallError("result_too_large", text, outcome_unknown=True)
        if self._redactor is not None and self._redactor.finds(text):
            text = f"Step {name!r} returned a secret, which is not stored. Read the secret in the step that uses it."
            raise CallError("tool_error", text, outcome_unknown=True)
        return json.loads(text)

    async def ask(self, question: str, schema: JSONValue) -> JSONValue:
        """Ask the person the task belongs to, and return the answer."""
        await self._end_if_forbidden()
        self._asked += 1
        form, is_single = form_of(schema)
        asked = Question(message=question, form=form, is_single=is_single)
        answer = await self._place.free_for(self._journal.answer(f"question-{self._asked}", asked))
        # The question may have been open for days.
        await self._end_if_forbidden()
        action = answer.get("action")
        content: JSON | None = answer.get("content")
        if action == "decline":
            raise CallError("consent_declined", f"The person declined to answer: {question}")
        if action != "accept" or content is None:
            raise CallError("consent_required", f"The person closed the question without an answer: {question}")
        return content["answer"] if is_single else content

    async def _end_if_forbidden(self) -> None:
        """Raise the error that ends the task: its rights may have been removed since it began."""
        try:
            if self.refusal is None:
                await self._look_again()
        except CallError as refusal:
            self.refusal = refusal
        if self.refusal is not None:
            raise self.refusal

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress of the task."""
        self._journal.progress(fraction, message if self._redactor is None else self._redactor.text(message))


def _nothing() -> None:
    pass
