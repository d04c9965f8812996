"""Service presets: the MCP servers of well-known services, for `pegboard add NAME`.

Each fact was read on the page that `page` names, on the day in `read_on`. None of the services was tried: that needs an
account at each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

READ_ON = "2026-11-27"


class ServicePreset(Struct, frozen=True, kw_only=True):
    """An MCP server where every person has an account.

    Args:
        name: the word for `pegboard add`, and the name of the source.
        title: the name of the service.
        url: the address of the server.
        page: where this is documented.
        client: `itself` if a client registers itself, or is known by its metadata document; `by_hand` if an operator
            registers one and gives its id.
        issuer: the authorization server, needed for a client with a secret; empty if the server or `auth` names it.
        scopes: scopes that must be named; empty for those that the server asks for.
        auth: further keys of `auth:`, which the issuer needs.
        note: what is different from other services.
        read_on: the day when the page was read.
    """

    name: str
    title: str
    url: str
    page: str
    client: Literal["itself", "by_hand"]
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    auth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""
    read_on: str = READ_ON


_GOOGLE_NOTE = (
    "a developer preview: the APIs and MCP services are enabled in a Google Cloud project, which must be enrolled. "
    "Gmail is declared; Drive, Calendar and Chat have their own servers (drivemcp, calendarmcp, chatmcp.googleapis.com)"
)

PRESETS = {
    preset.name: preset
    for preset in (
        ServicePreset(
            name="github",
            title="GitHub",
            url="https://api.githubcopilot.com/mcp/",
            page="https://github.com/github/github-mcp-server/blob/main/docs/host-integration.md",
            client="by_hand",
            issuer="https://github.com/login/oauth",
            note="register a GitHub App (its tokens expire) or an OAuth App; an organization may have to approve it",
        ),
        ServicePreset(
            name="gitlab",
            title="GitLab.com",
            url="https://gitlab.com/api/v4/mcp",
            page="https://docs.gitlab.com/user/gitlab_duo/model_context_protocol/mcp_server/",
            client="itself",
            note="an own instance has it at https://HOST/api/v4/mcp; known from configs in public repositories, "
            "since the page could not be read",
        ),
        ServicePreset(
            name="linear",
            title="Linear",
            url="https://mcp.linear.app/mcp",
            page="https://linear.app/docs/mcp",
            client="itself",
        ),
        ServicePreset(
            name="notion",
            title="Notion",
            url="https://mcp.notion.com/mcp",
            page="https://developers.notion.com/guides/mcp/build-mcp-client",
            client="itself",
            note="owners of a workspace can limit which clients its members connect",
        ),
        ServicePreset(
            name="slack",
            title="Slack",
            url="https://mcp.slack.com/mcp",
            page="https://docs.litellm.ai/docs/mcp_servers/slack",
            client="by_hand",
            auth={
                "authorization_url": "https://slack.com/oauth/v2_user/authorize",
                "token_url": "https://slack.com/api/oauth.v2.user.access",
            },
            note="create a Slack app with user token scopes and the Model Context Protocol switch on; "
            "list the app's scopes under `scopes`; they decide which tools you get",
        ),
        ServicePreset(
            name="google",
            title="Google Workspace: Gmail",
            url="https://gmailmcp.googleapis.com/mcp/v1",
            page="https://developers.google.com/workspace/guides/configure-mcp-servers",
            client="by_hand",
            issuer="https://accounts.google.com",
            scopes=(
                "https://www.googleapis.com/auth/gmail.readonly",
                "https://www.googleapis.com/auth/gmail.compose",
            ),
            auth={"authorization_params": {"access_type": "offline", "prompt": "consent"}},
            note=_GOOGLE_NOTE,
        ),
        ServicePreset(
            name="microsoft",
            title="Microsoft MCP Server for Enterprise",
            url="https://mcp.svc.cloud.microsoft/enterprise",
            page="https://learn.microsoft.com/en-us/graph/mcp-server/get-started",
            client="by_hand",
            issuer="https://login.microsoftonline.com/${MICROSOFT_TENANT_ID}/v2.0",
            auth={"sends_resource": False, "authorization_params": {"prompt": "select_account"}},
            note="a preview, of Entra data only; an administrator enables it in the tenant and grants its "
            "scopes to the registered client",
        ),
        ServicePreset(
            name="atlassian",
            title="Atlassian: Jira, Confluence, Compass",
            url="https://mcp.atlassian.com/v1/mcp",
            page="https://docs.litellm.ai/docs/mcp_servers/atlassian",
            client="itself",
            note="cloud sites only",
        ),
        ServicePreset(
            name="sentry",
            title="Sentry",
            url="https://mcp.sentry.dev/mcp",
            page="https://docs.sentry.io/product/sentry-mcp",
            client="itself",
        ),
        ServicePreset(
            name="stripe",
            title="Stripe",
            url="https://mcp.stripe.com",
            page="https://docs.stripe.com/mcp",
            client="itself",
            note="a preview; an administrator enables MCP access in the Dashboard, separately for sandboxes",
        ),
        ServicePreset(
            name="cloudflare",
            title="Cloudflare: Workers bindings",
            url="https://bindings.mcp.cloudflare.com/mcp",
            page="https://developers.cloudflare.com/agents/model-context-protocol/mcp-servers-for-cloudflare",
            client="itself",
            note="other products have their own servers, such as observability.mcp.cloudflare.com and "
            "builds.mcp.cloudflare.com",
        ),
    )
}  # fmt: skip
