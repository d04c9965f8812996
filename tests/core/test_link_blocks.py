"""Links to resources: what stands beside them is without secrets, too."""

from pegboard import Catalog, ResourceLink, Secret, ToolContext


async def test_icons_of_a_link_tell_no_secret() -> None:
    catalog = Catalog()

    @catalog.tool
    def linked() -> ResourceLink:
        """Link."""
        icon = {"src": "https://x.example/i.png?key=sesame-2026", "mimeType": "image/png"}
        return ResourceLink("note://a?key=sesame-2026", "a", icons=(icon,), size=5)

    context = ToolContext(user_id="ann", secrets={"KEY": Secret("sesame-2026")})
    result = await catalog.view(context).call("linked")
    (link,) = result.content
    assert isinstance(link, ResourceLink)
    assert link.size == 5
    assert "sesame" not in str(result)
    assert link.icons is not None
    assert link.icons[0]["mimeType"] == "image/png"
