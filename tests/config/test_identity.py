"""`identity:` of a config: what it means, and what is refused, at its place."""

from pathlib import Path
from typing import Any

import pytest

from pegboard import http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import AnonymousRule, ConsoleRules, IdentityRules, TokenRules
from pegboard.config.identity import console_rules_of
from pegboard.config.reload import Reloader
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from tests.auth.parts import bearer, rule
from tests.config.project import Project
from tests.server.doors import inside, post

CONTRACT = """
profiles: {chat: {}, messaging: {}}
identity:
  api_keys: {store: "sqlite:./pegboard.db"}
  jwt: {issuer: "https://login.example.com", audience: "https://tools.example.com/mcp", jwks_url: "https://login.example.com/jwks"}
  map: [{when: {claim: {team: support}}, user: "{sub}", space: "{org_id}", roles: [], profiles: [messaging]}, {when: {key: ann-laptop}, user: ann, space: s1, roles: [operator], profiles: [chat, messaging]}]
  anonymous: {profiles: [chat], on: loopback}
"""  # noqa: E501


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_example_of_the_contract_means_what_it_says(project: Project) -> None:
    assert project.write(CONTRACT).catalog().identity == IdentityRules(
        key_store=project.folder / "pegboard.db",
        tokens=TokenRules(
            issuer="https://login.example.com",
            audience="https://tools.example.com/mcp",
            jwks_url="https://login.example.com/jwks",
        ),
        map=(
            rule(claim={"team": "support"}, user="{sub}", space="{org_id}", profiles=("messaging",)),
            rule(key="ann-laptop", user="ann", space="s1", roles=("operator",), profiles=("chat", "messaging")),
        ),
        anonymous=AnonymousRule(profiles=("chat",)),
    )


def test_without_the_section_nobody_is_asked(project: Project) -> None:
    assert project.write("name: x\n").catalog().identity is None


@pytest.mark.parametrize(
    ("store", "path"),
    [("sqlite:keys.db", "{0}/keys.db"), ("sqlite:./a/keys.db", "{0}/a/keys.db"), ("sqlite:///keys.db", "{0}/keys.db"),
     ("sqlite:////var/keys.db", "/var/keys.db"), ("sqlite:/var/keys.db", "/var/keys.db")],
)  # fmt: skip
def test_a_store_is_found_from_the_config(project: Project, store: str, path: str) -> None:
    text = f'identity: {{api_keys: {{store: "{store}"}}, map: [{{when: {{key: a}}}}]}}\n'
    rules = project.write(text).catalog().identity
    assert rules is not None
    assert rules.key_store == Path(path.format(project.folder))


def test_values_may_come_from_the_environment(project: Project) -> None:
    project.env = {"ISSUER": "https://login.example.com", "TEAM": "support"}
    text = """
        identity:
          jwt: {issuer: "${ISSUER}", audience: a, jwks_url: "${ISSUER}/jwks"}
          map: [{when: {claim: {team: "${TEAM}", level: 3, verified: true}}, user: "{sub}"}]
    """
    rules = project.write(text).catalog().identity
    assert rules is not None
    assert rules.tokens is not None
    assert rules.tokens.jwks_url == "https://login.example.com/jwks"
    assert rules.map[0].claims == {"team": "support", "level": 3, "verified": True}


def test_one_profile_may_be_written_as_such(project: Project) -> None:
    rules = (
        project.write("profiles: {chat: {}}\nidentity: {anonymous: {profile: chat, on: anywhere}}\n").catalog().identity
    )
    assert rules == IdentityRules(anonymous=AnonymousRule(profiles=("chat",), is_anywhere=True))


JWT = "jwt: {issuer: i, audience: a, jwks_url: 'https://x/jwks'}"
KEYS = "api_keys: {store: 'sqlite:k.db'}"
REFUSED = [
    ("{}", "nobody could come in; add api_keys, jwt or anonymous, or remove the section"),
    (f"{{{KEYS}}}", "`map` has no rule, so no credential may do anything; add one for each"),
    (f"{{{KEYS}, map: []}}", "`map` has no rule, so no credential may do anything; add one for each"),
    ("{anonymous: {}}", "anonymous callers need a profile; add `profile:` with one of chat"),
    ("{anonymous: {profile: caht}}", "unknown profile 'caht'. Did you mean 'chat'?"),
    ("{anonymous: {profile: chat, profiles: [chat]}}", "write `profile` or `profiles`, not both"),
    ("{anonymous: {profile: chat, on: everywhere}}", "everywhere"),
    ("{anonymous: true}", "anonymous"),
    ("{api_keys: {}}", "store"),
    ("{api_keys: {store: 'redis://x'}, map: [{when: {key: a}, profiles: chat}]}", "expected `sqlite:` and a file"),
    ("{api_keys: {store: 'sqlite:'}, map: [{when: {key: a}, profiles: chat}]}", "expected `sqlite:` and a file"),
    (f"{{{KEYS}, map: [{{when: {{}}, profiles: chat}}]}}", "exactly one of the keys key, claim"),
    (f"{{{KEYS}, map: [{{profiles: chat}}]}}", "when"),
    (f"{{{KEYS}, map: [{{when: {{key: a, claim: {{b: c}}}}, profiles: chat}}]}}", "exactly one of the keys key, claim"),
    (f"{{{KEYS}, map: [{{when: {{key: a}}}}]}}", "the rule gives no profile; add `profiles:` with some of chat"),
    (f"{{{KEYS}, map: [{{when: {{key: a}}, profiles: [chat, nope]}}]}}", "unknown profile 'nope'"),
    (f"{{{KEYS}, map: [{{when: {{key: a}}, user: '{{sub}}', profiles: chat}}]}}", "an API key has no claims"),
    (f"{{{KEYS}, map: [{{when: {{claim: {{a: b}}}}, profiles: chat}}]}}", "there are no tokens; add jwt"),
    (f"{{{JWT}, map: [{{when: {{key: a}}, profiles: chat}}]}}", "there are no API keys; add api_keys"),
    (f"{{{JWT}, map: [{{when: {{claim: {{}}}}, profiles: chat}}]}}", 'name a claim; {sub: "*"} is every token'),
    (f"{{{JWT}, map: [{{when: {{claim: {{a: [b]}}}}, profiles: chat}}]}}", "claim"),
    (f"{{{JWT}, map: [{{when: {{claim: {{a: null}}}}, profiles: chat}}]}}", "claim"),
    (f"{{{JWT}, map: [{{when: {{claim: {{a: b}}}}, user: '{{sub', profiles: chat}}]}}", "write a plain name"),
    (f"{{{JWT}, map: [{{when: {{claim: {{a: b}}}}, user: , profiles: chat}}]}}", "expected a value, not nothing"),
    ("{jwt: {issuer: i, audience: a}, map: []}", "jwks_url"),
    ("{jwt: {issuer: i, audience: '', jwks_url: 'https://x'}, map: []}", "audience"),
    (
        "{jwt: {issuer: i, audience: a, jwks_url: 'http://login.example.com/jwks'}, map: []}",
        "can be changed on its way",
    ),
    ("{jwt: {issuer: i, audience: a, jwks_url: 'file:///etc/passwd'}, map: []}", "is not an address"),
    ("{jwt: {issuer: i, audience: a, jwks_url: 'https://[::1/jwks'}, map: []}", "is not an address"),
    ("{jwt: {issuer: i, audience: a, jwks_url: 'https://host:port/jwks'}, map: []}", "is not an address"),
    ("{jwt: {issuer: i, audience: 'https://[::1/mcp', jwks_url: 'https://x'}, map: []}", "is not an address"),
    ("{api_keys: {store: 'sqlite://[[/keys.db'}, map: []}", "expected `sqlite:` and a file"),
    ("{jwt: {issuer: i, audience: a, jwks_url: x, algorithms: [none]}, map: []}", "algorithms"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_cannot_be_honoured_is_refused_at_its_place(project: Project, text: str, said: str) -> None:
    problems = project.write(f"profiles: {{chat: {{}}}}\nidentity: {text}\n").said()
    assert any(said in problem and problem.startswith("pegboard.yaml:2:") for problem in problems), problems


def test_a_slip_in_the_name_of_a_way_in_is_one_problem(project: Project) -> None:
    (said,) = project.write("identity: {api_key: {store: 'sqlite:k.db'}}\n").said()
    assert said.endswith("unknown key 'api_key'. Did you mean 'api_keys'?")


@pytest.mark.parametrize("host", ["127.0.0.1:5", "localhost", "[::1]:80"])
def test_keys_of_an_issuer_on_this_machine_may_come_without_tls(project: Project, host: str) -> None:
    text = f"""
        identity:
          jwt: {{issuer: i, audience: a, jwks_url: "http://{host}/jwks"}}
          map: [{{when: {{claim: {{sub: "*"}}}}, user: "{{sub}}"}}]
    """
    assert project.write(text).said() == []


def test_a_fragment_cannot_say_who_may_come_in(project: Project) -> None:
    project.file("more.yaml", "identity: {anonymous: {on: anywhere}}\n")
    assert any("identity" in said for said in project.write("files: [more.yaml]\n").said())


async def test_a_reload_changes_who_may_come_in_and_a_bad_one_does_not(project: Project) -> None:
    store = KeyStore(project.folder / "keys.db")
    ann, bob = (bearer(store.add(name)[0]) for name in ("ann", "bob"))

    def write(*names: str, more: str = "") -> None:
        rules = "".join(f"    - {{when: {{key: {name}}}, user: {name}, profiles: [chat]}}\n" for name in names)
        project.path.write_text(
            f'profiles: {{chat: {{}}}}\nidentity:\n  api_keys: {{store: "sqlite:keys.db"}}\n  map:\n{rules}{more}'
        )

    write("ann")
    catalog, config = project.load()
    reloader = Reloader(project.path, {}, catalog, config=config)
    async with inside(http_app(catalog, config=config)) as client:

        async def statuses() -> list[int]:
            answers: list[Any] = [await post(client, "tools/list", headers=who) for who in (ann, bob, {})]
            return [answer.status_code for answer in answers]

        assert await statuses() == [200, 403, 401]
        write("bob")
        assert await reloader.reload()
        assert await statuses() == [403, 200, 401]
        write("ann", "bob", more="  colour: red\n")
        assert not await reloader.reload()
        project.path.write_text("")
        assert not await reloader.reload()
        assert await statuses() == [403, 200, 401]


CONSOLE = """
identity:
  jwt: {issuer: "https://login.example.com", audience: tools, jwks_url: "https://login.example.com/jwks"}
  map: [{when: {claim: {sub: "*"}}, user: "{sub}"}]
console: {client_id: pegboard, client_secret: "${SECRET}", scopes: [openid], bodies: operators}
"""


def test_the_console_has_a_client_at_the_issuer_and_says_who_sees_bodies(project: Project) -> None:
    project.env = {"SECRET": "s3cret"}
    assert console_rules_of(project.write(CONSOLE).load()[1]) == ConsoleRules(
        client_id="pegboard", client_secret=Secret("s3cret"), scopes=("openid",), shows_bodies=True
    )
    assert console_rules_of(project.write("name: x\n").load()[1]) == ConsoleRules()


@pytest.mark.parametrize(
    ("console", "said"),
    [
        ("{client_id: x}", "console.client_id: there is no issuer to log in at"),
        ("{scopes: [openid]}", "console: a secret and scopes are those of a client"),
        ("{bodies: everybody}", "console.bodies"),
    ],
)
def test_a_console_that_nobody_could_log_in_to_is_refused(project: Project, console: str, said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        project.write(f"console: {console}\n").catalog()
    assert said in str(refused.value)


async def test_a_change_of_the_console_waits_for_the_next_start(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.env = {"SECRET": "s3cret"}
    catalog, config = project.write(CONSOLE).load()
    reloader = Reloader(project.path, project.env, catalog, config=config)
    project.write(CONSOLE.replace("bodies: operators", "bodies: nobody"))
    assert await reloader.reload()
    assert "console has changed; it takes effect at the next start." in caplog.text
    assert console_rules_of(reloader.config).shows_bodies
