"""The files of examples/deploy and of the deploy page keep every stranger out, and agree with each other."""

import re
import shutil
from pathlib import Path

import yaml

from tests import forking
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "deploy"
FILES = [path for path in sorted(FOLDER.iterdir()) if path.is_file() and path.suffix != ".whl"]
PAGE = ROOT / "docs" / "howto" / "deploy.md"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
# `user:password@` of a URL, and `password=…` or `secret: …` with a value that is not a reference or a path.
_IN_URL = re.compile(r"://[^\s/@:]*:(?!\$\{file:)[^\s/@]+@")
_ASSIGNED = re.compile(r"(?i)(?:password|secret|token|_key)\w*['\"]?[ \t]*[=:][ \t]*(?!file:)['\"]?[\w-]{6,}")


def credentials_in(text: str) -> list[str]:
    return [found[0] for pattern in (_IN_URL, _ASSIGNED) for found in pattern.finditer(text)]


def pegboard_check(folder: Path) -> str:
    return forking.run(["pegboard", "check", "--strict"], cwd=folder, is_merged=True).stdout.decode()


def test_every_config_of_the_example_and_the_page_is_accepted_and_needs_a_credential(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "example", ignore=shutil.ignore_patterns("secrets", "state"))
    secrets = tmp_path / "example" / "secrets"
    secrets.mkdir()
    for name in re.findall(r"file:secrets/(\w+)}", (FOLDER / "pegboard.yaml").read_text(encoding="utf-8")):
        (secrets / name).write_text("0" * 64)
    page = tmp_path / "page"
    page.mkdir()
    for block in blocks_of(PAGE.read_text(encoding="utf-8")):
        if block.title is not None:
            (page / block.title).write_text(block.text)

    for folder in (tmp_path / "example", page):
        assert pegboard_check(folder).startswith("OK:"), folder
        config = yaml.safe_load((folder / "pegboard.yaml").read_text(encoding="utf-8"))
        assert {"anonymous"}.isdisjoint(config["identity"]), folder
        assert config["identity"]["map"], folder


def test_no_file_has_a_default_credential_or_lets_callers_in_without_one() -> None:
    for path in (*FILES, PAGE):
        text = path.read_text(encoding="utf-8")
        assert credentials_in(text.replace("PASSWORD :'", "")) == [], path.name  # a variable of psql
        assert "anonymous:" not in text, path.name
    assert credentials_in('url: "redis://:hunter2@redis:6379"') == ["://:hunter2@"]
    assert credentials_in("POSTGRES_PASSWORD: postgres") == ["PASSWORD: postgres"]


def test_the_servers_get_the_secrets_that_the_config_reads_and_no_others() -> None:
    read = set(re.findall(r"file:secrets/(\w+)}", (FOLDER / "pegboard.yaml").read_text(encoding="utf-8")))
    for service in ("pegboard-1", "pegboard-2"):
        mounted = {secret["target"].removeprefix("/srv/pegboard/secrets/") for secret in mounts_of(service)}
        assert mounted == read
    assert set(COMPOSE["secrets"]) >= read
    script = (FOLDER / "secrets.sh").read_text(encoding="utf-8")
    assert all(name in script for name in COMPOSE["secrets"])


def mounts_of(service: str) -> list[dict[str, str]]:
    return COMPOSE["services"][service]["secrets"]


def test_only_nginx_publishes_a_port_and_the_servers_trust_only_its_address() -> None:
    services = COMPOSE["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["nginx"]
    [nginx] = (address["ipv4_address"] for address in services["nginx"]["networks"].values() if address)
    upstream = re.findall(r"server ([\d.]+):8420", (FOLDER / "nginx.conf").read_text(encoding="utf-8"))
    for name, address in zip(("pegboard-1", "pegboard-2"), upstream, strict=True):
        command = services[name]["command"]
        assert command[command.index("--forwarded-allow") + 1] == nginx
        assert services[name]["networks"]["inner"]["ipv4_address"] == address
        assert (services[name]["read_only"], services[name]["cap_drop"]) == (True, ["ALL"])
    images = [service["image"] for service in services.values() if not service["image"].startswith("shop-")]
    assert all(re.search(r":\d", image) for image in images), "an image without a version changes by itself"


def test_nginx_needs_nothing_newer_than_debians_and_lets_long_streams_through() -> None:
    text = re.sub(r"#.*", "", (FOLDER / "nginx.conf").read_text(encoding="utf-8"))
    shown = next(block.text for block in blocks_of(PAGE.read_text("utf-8")) if block.text.startswith("upstream"))
    for config in (text, re.sub(r"#.*", "", shown)):
        # `resolve` in an upstream came with 1.27.3, `http2 on` with 1.25.1.
        assert not re.search(r"\bresolve\b|http2 on|non_idempotent", config)
        for line in ("proxy_buffering off;", "proxy_request_buffering off;", "proxy_read_timeout 1h;"):
            assert line in config


def test_the_page_shows_the_unit_and_the_image_checks_hashes_and_drops_root() -> None:
    unit = (FOLDER / "pegboard.service").read_text(encoding="utf-8")
    assert f"```text\n{unit}```" in PAGE.read_text(encoding="utf-8")
    lines = (FOLDER / "Containerfile").read_text(encoding="utf-8").splitlines()
    assert any("--require-hashes -r" in line for line in lines)
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER 10001:10001"]
    assert lines.index(users[0]) > max(number for number, line in enumerate(lines) if line.startswith("RUN"))


def test_the_packages_of_the_image_are_those_that_the_tests_ran_with() -> None:
    pinned = re.compile(r"^([\w.-]+==\S+)", re.MULTILINE)
    image = (FOLDER / "requirements.txt").read_text(encoding="utf-8")
    tested = set(pinned.findall((ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")))
    assert set(pinned.findall(image)) - tested == set()
    for entry in re.split(r"\n(?=\w)", image):
        assert "--hash=sha256:" in entry or "==" not in entry, entry
