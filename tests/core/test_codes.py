"""Codes: the decision on every tool at once is the one that `why` gives for each."""

from pegboard import Catalog, Policy, Profile, ToolContext
from pegboard.core.view import View


def _view(profile: str, user: str) -> tuple[Catalog, View]:
    catalog = Catalog()

    async def is_ann(ctx: ToolContext) -> bool:
        return ctx.user_id == "ann"

    catalog.tool(name="read", groups="staff")(lambda: None)
    catalog.tool(name="counted", groups="staff", available=is_ann)(lambda: None)
    catalog.tool(name="refund", groups="money")(lambda: None)
    catalog.tool(name="tidy", internal_only=True)(lambda: None)
    catalog.profile(Profile(name="clerk", include=("staff",)))
    catalog.profile(Profile(name="careful", include=("staff", "money"), policy=Policy(deny=("ref*",))))
    return catalog, catalog.view(ToolContext(user_id=user), profile=profile)


async def test_the_codes_of_all_tools_are_those_of_why() -> None:
    for profile in ("clerk", "careful"):
        for user in ("ann", "bob"):
            _, view = _view(profile, user)
            codes = await view.acodes()
            assert codes == {name: (await view.awhy(name)).code for name in codes}
            assert codes["counted"] == ("visible" if user == "ann" else "available")
            assert codes["refund"] == ("group" if profile == "clerk" else "policy")
