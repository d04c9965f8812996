"""Class hooks: in which order they run, what they may do, and the contexts that methods get."""

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from pegboard import (
    CallContext,
    CallError,
    DefinitionError,
    TextContent,
    Tool,
    ToolContext,
    Verdict,
)
from tests.authoring.parts import call, catalog_of, make_class


class Traced(Tool, abstract=True):
    """Writes down which of its methods ran."""

    def note(self, word: str) -> None:
        self.ctx.services["seen"].append(word)


def traced() -> tuple[list[str], ToolContext]:
    seen: list[str] = []
    return seen, ToolContext(services={"seen": seen})


# ---------------------------------------------------------------- hooks


class Outer(Traced, abstract=True):
    def before(self):
        self.note("outer before")

    async def around(self, proceed):
        self.note("outer in")
        value = await proceed()
        self.note("outer out")
        return value

    def after(self):
        self.note("outer after")

    def on_complete(self):
        self.note("outer complete")


class Inner(Outer, register=False):
    n: int = 0

    async def before(self, ctx):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.note("inner before")

    async def around(self, ctx, proceed):  # pyright: ignore[reportIncompatibleMethodOverride] - each takes what it names
        self.note("inner in")
        value = await proceed()
        self.note("inner out")
        return value

    async def perform(self):
        self.note("perform")
        return self.n

    def after(self, result):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.note(f"inner after {result.structured}")

    def on_error(self, result):
        self.note(f"inner error {result.error.kind}")

    def on_complete(self, ctx, result):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.note(f"inner complete {result.is_error}")


async def test_the_hooks_of_all_classes_run_those_of_the_bases_outside():
    seen, ctx = traced()
    assert (await call(Inner, {"n": 7}, ctx)).structured == 7
    assert seen == [
        "outer before",
        "inner before",
        "outer in",
        "inner in",
        "perform",
        "inner out",
        "outer out",
        "inner after 7",
        "outer after",
        "inner complete False",
        "outer complete",
    ]


async def test_catalog_wide_hooks_run_outside_those_of_the_class():
    seen, ctx = traced()
    catalog = catalog_of(Inner)

    @catalog.before()
    def first(_call):
        seen.append("catalog before")

    @catalog.after()
    def last(_call, _result):
        seen.append("catalog after")

    await call(catalog, {}, ctx)
    assert seen.index("catalog before") < seen.index("outer before")
    assert seen.index("catalog after") > seen.index("outer after")


async def test_on_complete_runs_even_when_the_arguments_were_refused():
    seen, ctx = traced()
    result = await call(Inner, {"n": "x"}, ctx)
    assert result.error is not None
    assert seen == ["inner error invalid_arguments", "inner complete True", "outer complete"]


async def test_on_complete_runs_even_when_a_type_refused_the_arguments():
    def odd(value: int) -> int:
        raise ValueError("never")

    from typing import Annotated

    class A(Traced, register=False):
        n: Annotated[int, pydantic.AfterValidator(odd)]

        def before(self):
            self.note("before")

        def perform(self) -> None: ...

        def on_complete(self, result):
            self.note(f"complete {self.n} {result.error.kind}")

    seen, ctx = traced()
    await call(A, {"n": 3}, ctx)
    assert seen == ["complete 3 invalid_arguments"]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Verdict.deny("not today"), "hook_refused", "not today"),
        (False, "hook_refused", "Tool execution was aborted"),
        ("report", "tool_error", "no such user"),
    ],
)
async def test_a_before_hook_that_denies_or_reports_an_error_halts(answer: Any, kind: str, message: str):
    class Guarded(Traced, register=False):
        def before(self):
            if answer == "report":
                self.report_error("no such user")
                return None
            return answer

        def perform(self):
            self.note("perform")

        def after(self):
            self.note("after")

        def on_error(self):
            self.note("error")

        def on_complete(self):
            self.note("complete")

    seen, ctx = traced()
    result = await call(Guarded, {}, ctx)
    assert result.error is not None
    assert (result.error.kind, result.error.message) == (kind, message)
    assert seen == ["error", "complete"]


@pytest.mark.parametrize("answer", [None, True, Verdict.allow()])
async def test_a_before_hook_that_allows_lets_the_call_on(answer: Any):
    class Open(Tool, register=False):
        def before(self):
            return answer

        def perform(self):
            return "ran"

    assert (await call(Open)).text == "ran"


async def test_a_before_hook_may_replace_the_arguments_which_are_judged_again():
    class Shout(Tool, register=False):
        text: str

        def before(self):
            if self.text.islower():
                return Verdict.replace({"text": self.text.upper()})
            return None

        def perform(self):
            return self.text

    assert (await call(Shout, {"text": "hi"})).text == "HI"


async def test_what_a_before_hook_writes_on_the_instance_is_there_in_perform_and_later_hooks():
    class Load(Traced, register=False):
        user: str = "ann"

        def before(self):
            self.loaded = f"loaded {self.user}"

        def perform(self):
            return self.loaded

        def after(self):
            self.note(self.loaded)

    seen, ctx = traced()
    assert (await call(Load, {}, ctx)).text == "loaded ann"
    assert seen == ["loaded ann"]


async def test_an_around_hook_may_change_the_value_and_deal_with_an_error():
    class Careful(Tool, register=False):
        fail: bool = False

        async def around(self, proceed):
            try:
                return {"value": await proceed()}
            except CallError as error:
                return {"saved": error.error.message}

        def perform(self):
            if self.fail:
                self.report_error("broken")
            return 1

    assert (await call(Careful)).structured == {"value": 1}
    assert (await call(Careful, {"fail": True})).structured == {"saved": "broken"}


async def test_an_error_that_an_around_hook_reports_is_the_result():
    class Late(Tool, register=False):
        async def around(self, proceed):
            await proceed()
            self.report_error("too late")

        def perform(self):
            return 1

    result = await call(Late)
    assert result.error is not None
    assert result.error.message == "too late"


async def test_an_after_hook_may_replace_render_or_report():
    class Replaces(Tool, register=False):
        how: str = ""

        def perform(self):
            return "first"

        def after(self, result):
            if self.how == "replace":
                return result.text + " second"
            if self.how == "render":
                self.render(text="second")
            if self.how == "report":
                self.report_error("checked: wrong", hint="try again")
            return None

    assert (await call(Replaces, {"how": "replace"})).text == "first second"
    assert (await call(Replaces, {"how": "render"})).content == (TextContent("first"), TextContent("second"))
    failed = await call(Replaces, {"how": "report"})
    assert failed.error is not None
    assert (failed.error.kind, failed.text, failed.error.hint) == ("tool_error", "checked: wrong", "try again")


def test_a_hook_that_asks_for_what_there_is_not_is_refused_at_its_definition():
    with pytest.raises(DefinitionError, match=r"A.before asks for \['result'\]; it may take \['call', 'ctx'\]"):

        class A(Tool, register=False):
            def before(self, result): ...

            def perform(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"B\.before must be a plain method"):

        class B(Tool, register=False):
            @classmethod
            def before(cls): ...

            def perform(self) -> None: ...


async def test_a_field_may_be_called_like_a_hook():
    class Log(Tool, register=False):
        before: str = ""
        after: str = ""

        def perform(self):
            return f"{self.before}..{self.after}"

    assert (await call(Log, {"before": "a", "after": "b"})).text == "a..b"


# ---------------------------------------------------------------- contexts


@dataclass(frozen=True, kw_only=True)
class MyContext(ToolContext):
    tenant: str = ""

    def greeting(self) -> str:
        return f"hello {self.tenant}"


async def test_a_method_that_asks_for_the_hosts_context_gets_the_hosts_own_object():
    class A(Tool, register=False):
        def before(self, ctx: MyContext) -> None:
            self.greeted = ctx.greeting()

        def perform(self, ctx: MyContext) -> str:
            ctx.services["seen"].append(ctx)
            return self.greeted

    seen: list[object] = []
    ctx = MyContext(tenant="acme", services={"seen": seen})
    assert (await call(A, {}, ctx)).text == "hello acme"
    assert seen[0] is ctx


@pytest.mark.parametrize("annotation", ["CallContext", CallContext, CallContext | None, Any, None])
async def test_a_method_that_asks_for_the_call_gets_the_calls_context(annotation: Any):
    def perform(self, ctx):
        return [type(ctx).__name__, ctx is self.ctx, bool(ctx.call_id)]

    if annotation is not None:
        perform.__annotations__ = {"ctx": annotation}
    made = make_class(body={"perform": perform, "__module__": __name__})
    assert (await call(made)).structured == ["CallContext", True, True]


async def test_toolcontext_gives_the_requests_own():
    class A(Tool, register=False):
        async def perform(self, context: "ToolContext") -> str:
            return type(context).__name__

    assert (await call(A)).text == "ToolContext"


def test_perform_takes_one_context_and_nothing_else():
    with pytest.raises(DefinitionError, match=r"A\.perform takes the context at most"):

        class A(Tool, register=False):
            def perform(self, ctx, more): ...

    with pytest.raises(DefinitionError, match=r"parameter 'ctx': .*is not a context type; write `ctx: ToolContext`"):

        class B(Tool, register=False):
            def perform(self, ctx: int): ...

    with pytest.raises(DefinitionError, match=r"C\.perform takes the context at most, and returns its result"):

        class C(Tool, register=False):
            def perform(self):
                yield 1
