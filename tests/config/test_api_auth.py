"""The security schemes of an OpenAPI document as defaults of `auth:`: where a key goes, and where people agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pegboard import DefinitionError, ToolContext, load_catalog
from pegboard.cli.options import Options
from pegboard.cli.person_connections import opened_connections
from pegboard.config import warnings
from tests.builtin.web import Site, as_json
from tests.config.api import get, spec
from tests.connections.agreeing import ANN, connect
from tests.connections.test_auth_config import CONNECTIONS, ENV
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, mail_of

KEY = {"mode": "static", "key": "${SECRET}"}
OAUTH = {
    "type": "oauth2",
    "flows": {
        "authorizationCode": {
            "authorizationUrl": "https://login.example.com/authorize", "tokenUrl": "https://login.example.com/token",
        },
    },
}  # fmt: skip


def document(security: Any = None, **schemes: Any) -> dict[str, Any]:
    whole = spec({"/pets": get()})
    whole["components"]["securitySchemes"] = schemes
    return whole if security is None else {**whole, "security": security}


def loaded(folder: Path, described: Any, auth: Any, *, url: str = "https://api.example.com", **more: Any) -> Any:
    (folder / "api.json").write_text(json.dumps(described))
    api = {"spec": "api.json", "base_url": url, **more}
    tool = {"name": "api", "type": "openapi", "openapi": {name: value for name, value in api.items() if value}}
    config = {"name": "acme", "connections": CONNECTIONS, "tools": [{**tool, **({"auth": auth} if auth else {})}]}
    path = folder / "pegboard.yaml"
    path.write_text(json.dumps(config))
    return load_catalog(path, env=ENV)


async def sent(folder: Path, described: Any, auth: Any) -> Any:
    """Return the request of one call."""
    site = Site(lambda _: as_json({}))
    async with site.server() as server:
        catalog, _ = loaded(folder, described, auth, url=server.url)
        result = await catalog.view(ToolContext(user_id="ann")).call("api__ask", {})
    assert result.error is None, result.error
    return site.asked[0]


@pytest.mark.parametrize(
    ("scheme", "header", "target"),
    [
        ({"type": "apiKey", "in": "header", "name": "X-Shop-Key"}, ("x-shop-key", ENV["SECRET"]), "/pets"),
        ({"type": "apiKey", "in": "cookie", "name": "shop"}, ("cookie", f"shop={ENV['SECRET']}"), "/pets"),
        ({"type": "http", "scheme": "Bearer"}, ("authorization", f"Bearer {ENV['SECRET']}"), "/pets"),
        ({"type": "apiKey", "in": "query", "name": "api_key"}, None, f"/pets?api_key={ENV['SECRET']}"),
    ],
)  # fmt: skip
async def test_a_key_goes_where_the_document_says(tmp_path: Path, scheme: Any, header: Any, target: str) -> None:
    asked = await sent(tmp_path, document(shop=scheme), KEY)
    assert asked.target == target
    if header is not None:
        assert asked.headers[header[0]] == header[1]


async def test_the_scheme_that_operations_require_goes_before_others_and_a_name_before_both(tmp_path: Path) -> None:
    schemes = {name: {"type": "apiKey", "in": "header", "name": name.upper()} for name in ("first", "second", "third")}
    described = document([{"second": []}], **schemes)
    assert "second" in (await sent(tmp_path, described, KEY)).headers
    assert "third" in (await sent(tmp_path, described, {**KEY, "scheme": "third"})).headers


@pytest.mark.parametrize(
    ("auth", "schemes", "text"),
    [
        (KEY, {"login": OAUTH}, "does not say where `key` goes; its security schemes are: 'login' (oauth2)"),
        (KEY, {}, "its security schemes are: none"),
        ({**KEY, "scheme": "x"}, {"shop": {"type": "http", "scheme": "bearer"}},
         "no security scheme 'x' fits `mode: static`; there are: 'shop' (bearer)"),
        ({"mode": "static", "bearer": "x", "scheme": "x"}, {}, "`scheme` says where `key` goes"),
        ({"mode": "user", "client_id": "a", "client_secret": "b"}, {"login": OAUTH},
         "write `token_url: https://login.example.com/token` and `authorization_url: https://login.example.com/auth"),
        ({"mode": "user", "client_id": "a", "private_key": "b"},
         {"login": {"type": "openIdConnect", "openIdConnectUrl": "https://x.example/.well-known/openid-configuration"}},
         "write `issuer: https://x.example` here"),
        ({"mode": "user", "client_id": "a"},
         {"login": {**OAUTH, "flows": {"authorizationCode": {"authorizationUrl": "/a", "tokenUrl": "/t"}}}},
         "'/a' is not an http or https URL"),
    ],
)  # fmt: skip
def test_a_document_that_does_not_fit_is_refused_at_auth(
    tmp_path: Path, auth: dict[str, Any], schemes: Any, text: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, document(**schemes), auth)
    assert text in str(refused.value)
    assert "tools[0].auth" in str(refused.value)


def test_a_key_is_for_an_api_and_not_sent_to_a_server_that_only_the_document_names(tmp_path: Path) -> None:
    described = document(shop={"type": "apiKey", "in": "header", "name": "X-Key"})
    with pytest.raises(DefinitionError, match="set `base_url`"):
        loaded(tmp_path, {**described, "servers": [{"url": "https://shop.example.com"}]}, KEY, url="")
    hook = {
        "name": "me",
        "type": "webhook",
        "description": "Say.",
        "webhook": {"url": "https://x.example"},
        "auth": KEY,
    }
    (tmp_path / "hook.yaml").write_text(json.dumps({"name": "acme", "tools": [hook]}))
    with pytest.raises(DefinitionError, match="goes with `openapi:`"):
        load_catalog(tmp_path / "hook.yaml", env=ENV)


def test_check_says_which_credentials_a_document_requires(tmp_path: Path) -> None:
    catalog, config = loaded(tmp_path, document([{"login": ["read"]}], login=OAUTH), None)
    [warning] = warnings(config, catalog)
    assert "its document requires credentials, and none are configured: 'login' (oauth2)" in str(warning)
    for security in ([], [{}, {"login": []}]):
        catalog, config = loaded(tmp_path, document(security, login=OAUTH), None)
        assert warnings(config, catalog) == []


@pytest.mark.parametrize("is_fetched", [False, True])
async def test_people_agree_where_the_document_says_to_the_scopes_of_the_chosen_operations(
    tmp_path: Path, *, is_fetched: bool
) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer, scopes=("read", "write")).running() as api:
        api.switches.has_metadata = api.switches.says_metadata = False
        issuer.add_client("app", redirects=("http://127.0.0.1:8420/connections/callback",))
        auth: dict[str, Any] = {"mode": "user", "client_id": "app", "resource": api.origin}
        place = {"spec": f"{api.origin}/openapi.json"} if is_fetched else {}
        # The document names an issuer on this machine, and the operator did not.
        catalog, _ = loaded(tmp_path, api.document(), auth, url=api.origin, operations=["readMail"], **place)
        async with catalog:
            await catalog.registry.sources["api"].listed()
            with pytest.raises(Exception, match="is not https"):
                await connect(catalog.connections, issuer, ANN, source="api")
        auth["hosts"] = [urlsplit(issuer.url).netloc]
        catalog, _ = loaded(tmp_path, api.document(), auth, url=api.origin, operations=["readMail"], **place)
        async with catalog:
            await catalog.registry.sources["api"].listed()
            view = catalog.view(ToolContext(user_id="ann", space_id="acme"))
            refused = await view.call("api__readMail", {})
            assert refused.error is not None
            assert refused.error.kind == "connection_required"
            assert (await connect(catalog.connections, issuer, ANN, source="api")).scopes == ("read",)
            assert (await view.call("api__readMail", {})).structured == {"user": "ann", "mail": mail_of("ann")}
            assert issuer.hits["metadata"] == 0


async def test_connecting_reads_a_document_at_a_url_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        loaded(tmp_path, {}, {"mode": "user"}, url=api.origin, spec=f"{api.origin}/openapi.json")
        for name, value in ENV.items():
            monkeypatch.setenv(name, value)
        async with opened_connections(Options(config=tmp_path / "pegboard.yaml"), source="api") as connections:
            assert connections.sources["api"].scopes == ("read", "write")


async def test_an_issuer_with_metadata_is_found_by_its_openid_url(tmp_path: Path) -> None:
    async with ToyIssuer(path="/tenant").running() as issuer, ApiUpstream(issuer).running() as api:
        api.switches.has_metadata = api.switches.says_metadata = False
        described = api.document()
        url = f"{issuer.url}/.well-known/openid-configuration"
        described["components"]["securitySchemes"] = {"login": {"type": "openIdConnect", "openIdConnectUrl": url}}
        auth = {"mode": "user", "hosts": [urlsplit(issuer.url).netloc], "resource": api.origin, "scopes": ["read"]}
        catalog, _ = loaded(tmp_path, described, auth, url=api.origin)
        async with catalog:
            await connect(catalog.connections, issuer, ANN, source="api")
            view = catalog.view(ToolContext(user_id="ann", space_id="acme"))
            assert (await view.call("api__getMe", {})).structured == {"user": "ann"}


async def test_a_service_that_names_its_issuer_is_asked_if_the_document_names_no_usable_one(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        auth = {"mode": "user", "hosts": [urlsplit(issuer.url).netloc]}
        for described in (api.document(), document(odd={"type": "mutualTLS"}, cut=5, flow={"type": "oauth2"})):
            catalog, _ = loaded(tmp_path, described, auth, url=api.origin)
            async with catalog:
                # Without a client the endpoints of the document are of no use; the issuer registers one.
                made = await connect(catalog.connections, issuer, ANN, source="api")
                assert made.issuer == issuer.url
