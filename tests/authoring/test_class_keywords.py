"""Class keywords: what a class says of itself, where it is registered, and what a subclass inherits."""

import inspect

import pytest

from pegboard import Catalog, DefinitionError, DuplicateToolError, RateLimit, Tool, ToolContext, default_catalog
from pegboard.authoring.options import ToolKeywords
from tests.authoring.parts import call, catalog_of, make_class


@pytest.fixture(autouse=True)
def _empty_default_catalog():
    declared = default_catalog.registry.declarations
    default_catalog.reset()
    yield
    # What other modules registered is theirs.
    default_catalog.registry.swap(declared)


class Quiet(Tool, abstract=True):
    """Base of the classes here, which say nothing themselves."""

    def perform(self) -> str:
        return type(self).__name__


def spec_of(cls: type[Tool]):
    return cls.tool_entry.spec


# ---------------------------------------------------------------- registration


def test_a_concrete_subclass_registers_on_the_default_catalog_at_its_definition():
    class Ping(Quiet):
        pass

    assert default_catalog.view(ToolContext()).names() == ["ping"]


def test_abstract_and_unregistered_classes_are_not_on_the_default_catalog():
    class Base(Quiet, abstract=True):
        pass

    class Apart(Quiet, register=False):
        pass

    assert default_catalog.view(ToolContext()).names() == []
    with pytest.raises(DefinitionError, match="concrete Tool class"):
        Catalog().register(Base)
    assert catalog_of(Apart).view(ToolContext()).names() == ["apart"]


def test_abstract_and_register_false_are_not_inherited():
    class Base(Quiet, abstract=True):
        pass

    class Apart(Base, register=False):
        pass

    class Below(Apart):
        pass

    assert default_catalog.view(ToolContext()).names() == ["below"]


def test_a_second_class_of_one_name_is_refused_naming_both_lines():
    class Twice(Quiet):
        pass

    first = inspect.getsourcelines(Twice)[1]
    with pytest.raises(DuplicateToolError) as refused:

        class TwiceTool(Quiet):
            pass

    assert f"{__name__}:{first}" in str(refused.value)
    assert str(refused.value).count(f"{__name__}:") == 2


def test_an_abstract_class_makes_no_instance():
    with pytest.raises(TypeError, match="Quiet is abstract"):
        Quiet()


def test_a_concrete_class_needs_perform():
    with pytest.raises(DefinitionError, match=r"Lazy has no perform\(\); write one, or say abstract=True"):

        class Lazy(Tool):
            x: int


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("class_name", "tool_name"),
    [
        ("SendEmailTool", "send_email"),
        ("SendEmail", "send_email"),
        ("HTTPFetchTool", "http_fetch"),
        ("FetchHTTP", "fetch_http"),
        ("ParseJSON2CSV", "parse_json2_csv"),
        ("S3Upload", "s3_upload"),
        ("Toolbox", "toolbox"),
        ("Ping", "ping"),
    ],
)
def test_the_default_name_is_the_class_name_in_snake_case_without_tool(class_name: str, tool_name: str):
    made = make_class(Quiet, name=class_name)
    assert spec_of(made).name == tool_name


def test_name_and_namespace_can_be_said():
    class SendEmail(Quiet, name="mail", namespace="admin"):
        pass

    assert spec_of(SendEmail).qualified_id == "admin.mail"
    assert default_catalog.view(ToolContext()).names() == ["mail"]


def test_a_name_that_cannot_be_is_refused_with_its_place_and_a_better_one():
    with pytest.raises(DefinitionError, match=rf"{__name__}:\d+: Tool name 'send mail'.*'send_mail'"):

        class A(Quiet, name="send mail", register=False):
            pass


def test_changing_the_name_registers_anew_and_drops_the_old_one():
    class Ping(Quiet):
        pass

    Ping.rename("pong")
    assert default_catalog.view(ToolContext()).names() == ["pong"]
    assert spec_of(Ping).name == "pong"


def test_a_name_that_is_taken_or_cannot_be_leaves_the_class_as_it_was():
    class Ping(Quiet):
        pass

    class Pong(Quiet):
        pass

    with pytest.raises(DuplicateToolError):
        Ping.rename("pong")
    with pytest.raises(DefinitionError):
        Ping.rename("p o n g")
    assert default_catalog.view(ToolContext()).names() == ["ping", "pong"]
    assert spec_of(Ping).name == "ping"


async def test_a_renamed_tool_runs_as_before():
    class Ping(Quiet, register=False):
        pass

    Ping.rename("pong")
    assert (await catalog_of(Ping).view(ToolContext()).call("pong")).text == "Ping"


# ---------------------------------------------------------------- keywords


def test_every_keyword_of_the_contract_is_known():
    words = (
        "name namespace groups available title read_only destructive idempotent open_world annotations consent task "
        "rate_limit timeout_s internal_only additional_properties aliases output ui ui_visibility meta icons inline "
        "max_concurrency repair deprecated replaced_by renamed_from examples"
    ).split()
    assert set(words) <= set(ToolKeywords.__annotations__)


def test_all_keywords_arrive_in_the_declaration():
    class Everything(
        Quiet,
        name="all",
        namespace="admin",
        title="All",
        groups=("a", "b"),
        available=True,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        annotations={"audience": "staff"},
        consent="destructive",
        task="forbidden",
        rate_limit="10/60s",
        timeout_s=5,
        internal_only=True,
        additional_properties=True,
        output={"type": "object"},
        ui="ui://mail",
        ui_visibility=["app"],
        meta={"team": "x"},
        icons=[{"src": "https://x/i.png"}],
        inline=True,
        max_concurrency=2,
        repair=True,
        deprecated="2027-01-01",
        replaced_by="other",
        renamed_from="former",
        examples=[{}],
        register=False,
    ):
        """Do all."""

    spec = spec_of(Everything)
    assert spec.definition() == {
        "name": "all",
        "title": "All",
        "description": "Do all.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": True},
        "outputSchema": {"type": "object"},
        "annotations": {
            "title": "All",
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": False,
            "openWorldHint": True,
            "audience": "staff",
        },
        "icons": [{"src": "https://x/i.png"}],
        "_meta": {"team": "x", "ui": {"resourceUri": "ui://mail", "visibility": ["app"]}},
    }
    assert (spec.namespace, spec.groups, spec.available, spec.internal_only) == ("admin", ("a", "b"), True, True)
    assert (spec.consent, spec.task, spec.timeout_s, spec.max_concurrency) == ("destructive", "forbidden", 5, 2)
    assert spec.rate_limit == RateLimit(max_calls=10, window_s=60.0)
    assert (spec.repair, spec.deprecated, spec.replaced_by) == (True, "2027-01-01", "other")
    assert (spec.renamed_from, spec.examples) == (("former",), ({},))
    assert Everything.tool_entry.runs == "inline"


def test_a_definition_has_no_empty_keys():
    class Bare(Quiet, register=False):
        pass

    assert spec_of(Bare).definition() == {"name": "bare", "inputSchema": {"type": "object", "properties": {}}}


def test_a_tool_without_groups_is_in_core():
    class Bare(Quiet, register=False):
        pass

    assert spec_of(Bare).groups == ("core",)


def test_an_unknown_keyword_is_refused_with_the_nearest_known_one():
    with pytest.raises(DefinitionError, match=rf"{__name__}:\d+: unknown tool option 'destructiv'.*'destructive'"):

        class A(Quiet, destructiv=True):  # type: ignore[call-arg]
            pass


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"meta": ["x"]}, "meta=['x'] must be a dict."),
        ({"aliases": ("x",)}, "aliases=('x',) must be a dict."),
        ({"meta": {"x": {1, 2}}}, "is not JSON"),
        ({"annotations": "x"}, "annotations='x' must be a dict."),
        ({"ui": "https://x"}, "ui='https://x' must start with 'ui://'."),
        ({"ui_visibility": ["model", "user"]}, "only 'model' and 'app' are known."),
        ({"task": "always"}, "task='always': say forbidden, optional or required."),
        ({"consent": "sometimes"}, "consent='sometimes': say never, always, destructive"),
        ({"consent": True}, "consent=True"),
        ({"rate_limit": "ten a minute"}, "'ten a minute' is not a rate limit"),
        ({"timeout_s": 0}, "timeout_s=0 must be a number more than 0."),
        ({"timeout_s": "20"}, "timeout_s='20' must be a number more than 0."),
        ({"max_concurrency": 0}, "max_concurrency=0 must be a number more than 0."),
        ({"read_only": "yes"}, "read_only='yes' must be true, false or None."),
        ({"internal_only": 1}, "internal_only=1 must be true or false."),
        ({"additional_properties": "yes"}, "additional_properties='yes' must be True, False or a JSON Schema."),
        ({"namespace": "a__b"}, "Namespace 'a__b'"),
        ({"deprecated": "soon"}, "deprecated='soon' is not a date"),
        ({"groups": 5}, "groups=5 must be a list."),
    ],
)
def test_a_keyword_that_cannot_be_honoured_is_refused_with_its_value(keywords: dict, text: str):
    with pytest.raises(DefinitionError) as refused:
        make_class(Quiet, **keywords)
    assert text in str(refused.value)


def test_all_faults_of_the_keywords_come_at_once():
    with pytest.raises(DefinitionError) as refused:

        class A(Quiet, register=False, task="x", ui="y", timeout_s=-1):
            pass

    assert len(refused.value.problems) == 3
    assert all(problem.where.startswith(f"{__name__}:") for problem in refused.value.problems)


# ---------------------------------------------------------------- inheritance


def test_annotations_and_guards_are_inherited_and_meta_merges():
    class Base(
        Quiet,
        abstract=True,
        groups="admin",
        destructive=True,
        title="Admin",
        annotations={"a": 1},
        meta={"x": 1, "y": 1},
        consent="always",
        rate_limit="1/1s",
        ui="ui://x",
    ):
        pass

    class Delete(Base, register=False, idempotent=True, annotations={"b": 2}, meta={"y": 2}):
        """Delete it."""

    spec = spec_of(Delete)
    assert spec.definition()["annotations"] == {
        "title": "Admin",
        "destructiveHint": True,
        "idempotentHint": True,
        "a": 1,
        "b": 2,
    }
    assert spec.definition()["_meta"] == {"x": 1, "y": 2, "ui": {"resourceUri": "ui://x"}}
    assert (spec.groups, spec.consent, spec.rate_limit) == (("admin",), "always", RateLimit(max_calls=1, window_s=1.0))


def test_what_makes_one_tool_this_tool_is_not_inherited():
    class Parent(
        Quiet,
        register=False,
        name="parent",
        description="The parent.",
        renamed_from=["older"],
        deprecated="2027-01-01",
        replaced_by="child",
        examples=[{}],
        full_names="x",
    ):
        pass

    class Child(Parent, register=False):
        """The child."""

    spec = spec_of(Child)
    assert (spec.name, spec.description, spec.renamed_from) == ("child", "The child.", ())
    assert (spec.deprecated, spec.replaced_by, spec.examples, spec.full_names) == (None, None, (), None)


def test_words_come_from_the_class_and_else_from_its_nearest_concrete_base():
    class Ping(Quiet, register=False):
        """Ping it.

        Slowly.
        """

    class Fast(Ping, register=False):
        pass

    class Said(Ping, register=False, description="Said so."):
        """A note to developers."""

    assert spec_of(Ping).description == "Ping it.\n\nSlowly."
    assert spec_of(Fast).description == "Ping it.\n\nSlowly."
    assert spec_of(Said).description == "Said so."
    assert spec_of(make_class(Quiet, name="Mute")).description == ""


async def test_a_class_that_says_inline_runs_on_the_loop_and_else_in_a_thread():
    import threading

    class Where(Tool, register=False):
        def perform(self) -> str:
            return threading.current_thread().name

    class Inline(Where, register=False, inline=True):
        pass

    assert (await call(Where)).text.startswith("pegboard-tool")
    assert (await call(Inline)).text == threading.current_thread().name
