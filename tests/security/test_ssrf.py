"""SSRF cases as far as the guarded client alone can show them; the observers are listeners and a socket audit."""

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.egress.http import GuardedClient
from pegboard.egress.transport import GuardedTransport, guarded_client
from pegboard.egress.urls import expand_path
from tests.egress.loopback import RawServer, answer, names, redirect
from tests.timing import is_within


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt of this process to connect anywhere.

    Not an audit hook: it cannot be removed, and one in Python lets two threads meet inside of `sys.settrace`, which
    then fails in one of them.
    """
    attempts: list[str] = []

    class Watched(socket.socket):
        def connect(self, address: Any, /) -> None:
            attempts.append(str(address))
            return super().connect(address)

        def connect_ex(self, address: Any, /) -> int:
            attempts.append(str(address))
            return super().connect_ex(address)

    monkeypatch.setattr(socket, "socket", Watched)
    return attempts


async def refused(url: str, client: GuardedClient | None = None) -> EgressError:
    """Ask both forms of the client for the URL; both must refuse it. Returns the first refusal."""
    async with client or GuardedClient() as asked:
        with pytest.raises(EgressError) as caught:
            await asked.request("GET", url, timeout_s=5)
    assert caught.value.error.kind == "blocked_destination", caught.value
    return caught.value


async def refused_unheard(spelling: str, connects: Sequence[str], host: str = "127.0.0.1") -> EgressError:
    """The URL (with `{port}`) is refused while a listener on `host` hears nothing and no socket tries to connect."""
    async with RawServer(answer(b"internal"), host=host) as listener:
        url = spelling.format(port=listener.port)
        exc = await refused(url)
        async with guarded_client(GuardedTransport(Destinations())) as foreign:
            with pytest.raises(Exception):  # noqa: B017, PT011  (which one is the library's choice; the hits count)
                await foreign.get(url)
        assert (listener.hits, list(connects)) == (0, [])
    return exc


async def test_ssrf_01_loopback(connects: list[str]) -> None:
    exc = await refused_unheard("http://127.0.0.1:{port}/", connects)
    assert "loopback" in exc.error.message
    await refused_unheard("http://localhost:{port}/", connects)
    await refused_unheard("http://LOCALHOST.:{port}/", connects)
    await refused_unheard("http://[::1]:{port}/", connects)


async def test_ssrf_02_loopback_other(connects: list[str]) -> None:
    await refused_unheard("http://127.0.0.2:{port}/", connects, host="127.0.0.2")


async def test_ssrf_03_decimal(connects: list[str]) -> None:
    await refused_unheard("http://2130706433:{port}/", connects)


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "127.0.1", "0x7f.1", "0x7f000001", "0x7F.0x0.0x0.0x1", "017700000001", "0177.0.0.1", "127.0.0.1.",
        "%31%32%37.0.0.1", "127.0.0.%31", "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "127\u30020\u30020\u30021",
        "\u2460\u2461\u2466.0.0.1", "0", "00000000.0",
    ],
)  # fmt: skip
async def test_ssrf_06_short_and_other_spellings(host: str, connects: list[str]) -> None:
    async with RawServer(answer(b"internal")) as listener:
        async with GuardedClient() as client:
            with pytest.raises(EgressError) as caught:
                await client.request("GET", f"http://{host}:{listener.port}/", timeout_s=10)
        # "0177.0.0.1" is not an address to URL parsers; it is refused as such, which is as good.
        assert caught.value.error.kind in ("blocked_destination", "invalid_arguments")
        assert (listener.hits, connects) == (0, [])


async def test_ssrf_07_v4_mapped(connects: list[str]) -> None:
    for form in ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"):
        await refused_unheard("http://" + form + ":{port}/", connects)


async def test_ssrf_09_unspecified(connects: list[str]) -> None:
    await refused_unheard("http://0.0.0.0:{port}/", connects)
    await refused_unheard("http://[::]:{port}/", connects)


async def test_ssrf_10_metadata(connects: list[str]) -> None:
    for host in ("169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "2852039166"):
        exc = await refused(f"http://{host}/latest/meta-data/")
        assert "metadata service" in exc.error.message
    opened = GuardedClient(Destinations(allow_private=True))
    await refused("http://169.254.169.254/latest/meta-data/", opened)
    assert connects == []


async def test_ssrf_15_private(connects: list[str]) -> None:
    for host in ("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.0.1", "[fd12::1]"):
        await refused(f"http://{host}/")
    assert connects == []


async def test_ssrf_15_the_refusal_does_not_tell_what_the_name_resolves_to() -> None:
    client = GuardedClient(resolve=names(intranet_test="10.11.12.13"))
    exc = await refused("http://intranet.test/", client)
    assert exc.error.message == "'intranet.test' is refused: its address is not public (private). Use a public host."


async def test_ssrf_17_userinfo_confusion(connects: list[str]) -> None:
    await refused_unheard("http://allowed.example@127.0.0.1:{port}/", connects)
    await refused_unheard("http://127.0.0.1:{port}#@allowed.example/", connects)
    await refused_unheard("http://allowed.example:80@127.0.0.1:{port}/", connects)
    await refused_unheard("http://allowed.example\\@127.0.0.1:{port}/", connects)
    await refused_unheard("http://127.0.0.1:{port}?@allowed.example/", connects)


async def test_ssrf_17_a_user_name_is_refused_where_the_host_behind_it_is_allowed(connects: list[str]) -> None:
    async with RawServer(answer()) as listener:
        for spelling in ("allowed.example@127.0.0.1", "allowed.example:80@127.0.0.1", "@127.0.0.1:1@127.0.0.1"):
            client = GuardedClient(Destinations(allow_private=True))
            await refused(f"http://{spelling}:{listener.port}/", client)
        assert (listener.hits, connects) == (0, [])


# ---- redirects and names ---------------------------------------------------------------------------------------------

PUBLIC = Destinations(allow_private=True, allow_hosts=("public.test",))
BOOK = names(public_test="127.0.0.1")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://2130706433:{port}/"])
async def test_ssrf_20_redirect_to_internal(status: str, form: str) -> None:
    async with RawServer(answer(b"internal")) as inner:
        async with (
            RawServer(redirect(form.format(port=inner.port), status=status)) as start,
            GuardedClient(PUBLIC, resolve=BOOK) as client,
        ):
            with pytest.raises(EgressError) as caught:
                await client.request("POST", f"http://public.test:{start.port}/", body=b"x")
        assert (caught.value.error.kind, start.hits, inner.hits) == ("blocked_destination", 1, 0)
        assert "Redirect 1" in caught.value.error.message


async def test_ssrf_20_second_hop_to_internal() -> None:
    async with (
        RawServer(answer(b"internal")) as inner,
        RawServer(redirect(f"{inner.url}/")) as second,
        RawServer(redirect(f"http://public.test:{second.port}/")) as first,
    ):
        exc = await refused(f"http://public.test:{first.port}/", GuardedClient(PUBLIC, resolve=BOOK))
        assert (first.hits, second.hits, inner.hits) == (1, 1, 0)
        assert "Redirect 2" in exc.error.message


async def test_ssrf_20_each_hop_is_judged_by_its_address_where_no_name_is_listed(connects: list[str]) -> None:
    async with RawServer(redirect("http://169.254.169.254/latest/meta-data/")) as start:
        exc = await refused(start.url, GuardedClient(Destinations(allow_private=True)))
        assert "Redirect 1" in exc.error.message
        assert start.hits == len(connects) == 1
        assert "169.254" not in str(connects)


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
async def test_ssrf_20_credentials_stay_with_the_origin_that_they_are_for(status: str) -> None:
    async with (
        RawServer(answer(b"elsewhere")) as other,
        RawServer(redirect(f"{other.url}/", status=status)) as start,
        GuardedClient(Destinations(allow_private=True), headers={"Authorization": "Bearer canary"}) as client,
    ):
        response = await client.request("POST", start.url, headers={"X-Api-Key": "canary"}, body=b"x")
        assert (response.status_code, other.hits) == (200, 1)
        assert start.heads[0].count("canary") == 2
        assert "canary" not in other.heads[0]


async def test_ssrf_20_location_with_line_breaks_sends_no_header() -> None:
    async with RawServer(redirect("/x\r\n X-Injected: 1")) as start:
        async with GuardedClient(PUBLIC, resolve=BOOK) as client:
            with pytest.raises(EgressError):
                await client.request("GET", f"http://public.test:{start.port}/")
        assert not any("x-injected" in head.lower().split("\r\n", 1)[1] for head in start.heads)


async def test_ssrf_21_dns_rebinding_goes_to_the_judged_address() -> None:
    """The name answers 127.0.0.2 (which is allowed) once and 127.0.0.1 ever after."""
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    rules = Destinations(allow_private=True, allow_hosts=("127.0.0.2",))
    async with RawServer(answer(b"judged"), host="127.0.0.2") as judged:
        async with RawServer(answer(b"internal"), port=judged.port) as internal:
            async with GuardedClient(rules, resolve=rebinding) as client:
                response = await client.request("GET", f"http://rebind.test:{judged.port}/")
            assert (response.body, asked, judged.hits, internal.hits) == (b"judged", ["rebind.test"], 1, 0)
            assert f"host: rebind.test:{judged.port}" in judged.heads[0].lower()
            async with GuardedClient(rules, resolve=rebinding) as client:
                with pytest.raises(EgressError) as caught:
                    await client.request("GET", f"http://rebind.test:{judged.port}/")
            assert (caught.value.error.kind, internal.hits) == ("blocked_destination", 0)


async def test_ssrf_21_one_internal_answer_among_public_ones_refuses_all(connects: list[str]) -> None:
    for answers in (
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["93.184.216.34", "::1", "8.8.8.8"],
    ):
        await refused("http://both.test/", GuardedClient(resolve=names(both_test=answers)))
    assert connects == []


async def test_ssrf_21_tls_keeps_the_name_for_sni_and_certificate(tmp_path: Path) -> None:
    server_side, client_side = certificates("public.test", tmp_path)
    seen: list[str | None] = []
    server_side.sni_callback = lambda _sock, name, _context: seen.append(name)  # pyright: ignore[reportAttributeAccessIssue]
    book = names(public_test="127.0.0.1", other_test="127.0.0.1")
    async with RawServer(answer(b"safe"), tls=server_side) as server:
        async with GuardedClient(Destinations(allow_private=True), resolve=book, ssl_context=client_side) as client:
            response = await client.request("GET", f"https://public.test:{server.port}/")
            with pytest.raises(EgressError) as caught:
                await client.request("GET", f"https://other.test:{server.port}/")
        assert (response.body, seen) == (b"safe", ["public.test", "other.test"])
    assert (caught.value.error.kind, caught.value.error.retryable) == ("upstream_unavailable", False)
    assert "127.0.0.1" not in caught.value.error.message


async def test_ssrf_21_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    server_side, client_side = certificates("public.test", tmp_path)
    async with RawServer(answer()) as plain:
        async with RawServer(redirect(f"http://public.test:{plain.port}/"), tls=server_side) as server:
            client = GuardedClient(PUBLIC, resolve=BOOK, ssl_context=client_side)
            await refused(f"https://public.test:{server.port}/", client)
        assert (server.hits, plain.hits) == (1, 0)


def certificates(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A self-signed certificate: the server's context and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(pem + private)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(folder / "server.pem")
    return server_side, ssl.create_default_context(cadata=pem.decode())


# ---- schemes, headers, bodies, time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "gopher://127.0.0.1:70/x", "ftp://127.0.0.1/x", "unix:///var/run/docker.sock",
        "data:text/plain,hi", "javascript:alert(1)", "http+unix://%2Fvar%2Frun%2Fdocker.sock/x", "ws://127.0.0.1/",
        "FILE:///etc/passwd",
    ],
)  # fmt: skip
async def test_ssrf_22_scheme(url: str, connects: list[str]) -> None:
    exc = await refused(url)
    assert "only http and https" in exc.error.message
    assert connects == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"}, {"X": "a\nb"}, {"X": "a\0b"}, {"X y": "a"}, {"X:": "a"}, {"Host": "evil"},
        {"Content-Length": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "x"}, {"Proxy-Authorization": "x"},
        {"AUTHORIZATION": "Bearer mine"},
    ],
)  # fmt: skip
async def test_ssrf_23_header_injection_from_arguments(headers: dict[str, str]) -> None:
    async with RawServer(answer()) as server:
        rules = Destinations(allow_private=True)
        async with GuardedClient(rules, headers={"Authorization": "Bearer configured"}) as client:
            with pytest.raises(EgressError) as caught:
                await client.request("GET", server.url, headers=headers)
            await client.request("GET", server.url)
        assert (caught.value.error.kind, len(server.heads)) == ("invalid_arguments", 1)
        assert "authorization: bearer configured" in server.heads[0].lower()


async def test_ssrf_25_compression_bomb() -> None:
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    mebibyte = block.compress(bytes(1024 * 1024)) + block.flush(zlib.Z_FULL_FLUSH)
    gibibyte = mebibyte * 1024
    forms = {
        "gzip": gzip.compress(b"")[:10] + gibibyte,
        "deflate": gibibyte,
        "gzip, gzip": gzip.compress(gzip.compress(b"")[:10] + gibibyte),
        "br": b"whatever",
        "zstd": b"whatever",
    }
    for coding, packed in forms.items():
        async with RawServer(answer(packed, headers=[f"Content-Encoding: {coding}"])) as server:
            async with GuardedClient(Destinations(allow_private=True)) as client:
                before_kib = forget_peak()
                started = asyncio.get_running_loop().time()
                with pytest.raises(EgressError) as caught:
                    await client.request("GET", server.url)
                assert is_within(asyncio.get_running_loop().time() - started, 1)
                assert peak_kib() - before_kib < 20 * 1024
                assert caught.value.error.kind in ("result_too_large", "protocol_error")


def forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak_kib()


def peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opening: bytes) -> None:
    writer.write(opening)
    while not reader.at_eof():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "opening", [b"", b"HTTP/1.1 200 OK\r\nX-Endless: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"]
)
async def test_ssrf_26_slow_response(opening: bytes) -> None:
    # A busy machine may spend a short time on the way there; of a request never sent, all is known.
    for timeout_s in (0.5, 5, 50):
        async with RawServer(lambda reader, writer: drip(reader, writer, opening)) as server:
            async with GuardedClient(Destinations(allow_private=True)) as client:
                started = asyncio.get_running_loop().time()
                with pytest.raises(EgressError) as caught:
                    await client.request("POST", server.url, timeout_s=timeout_s)
                took_s = asyncio.get_running_loop().time() - started
            error = caught.value.error
            # A drip that is not HTTP at all may be seen through before the deadline.
            assert error.kind == "timeout" or (opening == b"" and error.kind == "protocol_error")
            assert is_within(took_s, timeout_s + 0.5)
            if server.heads:
                async with asyncio.timeout(60):
                    await server.closed_by_client.wait()
                break
    assert error.outcome_unknown


@pytest.mark.parametrize(
    "org", ["../../admin", "%2e%2e%2f", "a?x=", "a#b", "//evil.example", "..\\..", "a b", "\u00e9"]
)
async def test_ssrf_27_path_parameter_escape(org: str) -> None:
    async with RawServer(answer()) as server, GuardedClient(Destinations(allow_private=True)) as client:
        await client.request("GET", expand_path(server.url + "/api/{org}/users", {"org": org}))
        path = server.heads[0].split(" ")[1]
    parts = path.split("/")
    assert (len(parts), parts[:2], parts[3]) == (4, ["", "api"], "users")


@pytest.mark.parametrize("org", ["", ".", ".."])
async def test_ssrf_27_a_segment_that_climbs_is_refused(org: str) -> None:
    with pytest.raises(EgressError) as caught:
        expand_path("https://api.test/{org}/users", {"org": org})
    assert caught.value.error.kind == "invalid_arguments"
