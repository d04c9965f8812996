"""An import in five steps that survives being killed: `python import_orders.py`, kill it, and run it again.

Each step is recorded in `tasks.db` beside this file when it is done. The next run goes on from the last one.
"""

import asyncio
import sys
from pathlib import Path

from pegboard import CallContext, Catalog, Tasks, ToolContext

ANN = ToolContext(user_id="ann")


def catalog_in(folder: Path) -> Catalog:
    """Return a catalog with the import, whose tasks and orders are kept in a folder."""
    catalog = Catalog("orders", tasks=Tasks(f"sqlite:{folder}/tasks.db"))
    orders = folder / "orders.txt"

    @catalog.tool(task="required")
    async def import_orders(ctx: CallContext, shop: str) -> str:
        """Import the orders of a shop."""
        rows = await ctx.step("download", download, shop)
        await ctx.progress(0.2, f"{len(rows)} orders")
        good = await ctx.step("check", check, rows)
        priced = await ctx.step("price", price, good)
        # This one writes: its key lets whoever keeps the orders see that they are there already.
        await ctx.step("load", lambda: load(priced, ctx.step_key), retries=3)
        return await ctx.step("report", lambda: f"{len(priced)} orders of {shop} are in")

    async def download(shop: str) -> list[str]:
        return await slowly([f"{shop}-{number}" for number in range(1, 6)], "download")

    async def check(rows: list[str]) -> list[str]:
        return await slowly([row for row in rows if not row.endswith("-3")], "check")

    async def price(rows: list[str]) -> list[str]:
        return await slowly([f"{row} 10.00" for row in rows], "price")

    def load(rows: list[str], key: str) -> int:
        known = orders.read_text() if orders.exists() else ""
        if key not in known:
            orders.write_text(known + "".join(f"{key} {row}\n" for row in rows))
        return len(rows)

    async def slowly(rows: list[str], step: str) -> list[str]:
        print(step, flush=True)
        await asyncio.sleep(1)
        return rows

    return catalog


async def main(folder: Path) -> None:
    """Begin an import, or go on with the one that was interrupted, and wait for its end."""
    catalog = catalog_in(folder)
    try:
        await catalog.tasks.wake()
        left = [task for task in await catalog.tasks.list(ANN) if not task.is_over]
        task_id = left[0].task_id if left else None
        print("goes on" if task_id else "begins", flush=True)
        if task_id is None:
            task_id = (await catalog.view(ANN).call("import_orders", {"shop": "web"}, raise_errors=True)).task_id
        assert task_id is not None
        print((await catalog.tasks.result(task_id, ANN)).text, flush=True)
    finally:
        await catalog.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
