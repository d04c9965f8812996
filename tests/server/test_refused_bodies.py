"""A body that is refused while it is still being sent: its client reads why, whatever it goes on to send."""

import asyncio
from pathlib import Path

from tests.server.processes import serving

LIMIT = "limits: {request_body_bytes: 100000}\ntools: [{name: datetime_now, type: builtin}]\n"
BODY = b"x" * 8_000_000


async def test_the_answer_to_a_body_that_is_too_long_reaches_a_client_that_reads_last(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(LIMIT)
    async with serving(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        for path in ("/mcp", "/v1/tools/datetime_now/call") * 5:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
                f"Accept: application/json, text/event-stream\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
            )
            # All of it is written before anything is read, as many clients do.
            writer.write(BODY)
            await writer.drain()
            async with asyncio.timeout(60):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
            assert b"100000" in answer
            writer.close()
