# pyright: strict
"""The Python example of the design, as written, but for a real secret and an `await` inside a function."""

from pegboard import Catalog, Field, Secret, Tool, ToolContext

catalog = Catalog()


@catalog.predicate
def sentry_configured(ctx: ToolContext) -> bool:
    return "SENTRY_TOKEN" in ctx.secrets


@catalog.tool(groups="core", read_only=True)
def word_count(text: str, unique: bool = False) -> int:
    """Count the words of a text.

    Args:
        text: Any text.
        unique: Count each distinct word once.
    """
    words = text.split()
    return len(set(words)) if unique else len(words)


@catalog.tool(groups="core", available="sentry_configured", rate_limit="10/60s", timeout_s=20)
async def list_issues(ctx: ToolContext, project: str, limit: int = 20) -> list[dict[str, object]]:
    """List open issues of a project."""
    ...  # noqa: PIE790 - as written; without it a value would be missing


class SendEmail(Tool, groups=("core", "chat_only"), destructive=True, consent="always"):
    """Send an email."""

    to: str = Field(description="Address", pattern=r".+@.+", aliases=("recipient",))
    subject: str
    body: str = ""

    async def perform(self, ctx: ToolContext) -> str:
        return f"sent to {self.to}"


catalog.register(SendEmail)  # it is on pegboard.default_catalog besides, unless register=False or abstract=True


@catalog.builder("trigger_pr_review", groups="triggers", factory="trigger_pr_review")
def _(ctx: ToolContext):  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
    return ctx.factory("trigger_pr_review")(ctx)


ctx = ToolContext(user_id="ann", space_id="s1", secrets={"SENTRY_TOKEN": Secret("…")})
view = catalog.view(ctx, include=["core", "chat_only"])
names = view.names()  # ['word_count', 'list_issues', 'send_email']
allowed = view.names(server="acme")  # ['mcp__acme__word_count', …] for an SDK allow-list
schemas = view.export("openai")  # function schemas, ready to send
# hidden, code 'group': not in include=['core', 'chat_only'];
# fix: include 'triggers'; next: code 'factory', no factory 'trigger_pr_review' in the context
hidden = view.why("trigger_pr_review")


async def count() -> object:
    result = await view.call("word_count", {"text": "a b a", "unique": True})  # ToolResult(structured=2, …)
    return result.structured
