"""What Pegboard imports is declared, and what an extra brings is missed with its name and nowhere else."""

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions as read_distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Pinned to the version by the distribution behind the name, which is declared.
COME_WITH = {
    "genai_prices": "pydantic_ai",
    "loguru": "fastembed",
    "pydantic_core": "pydantic",
    "cryptography": "mcp",
    "mcp_types": "mcp",
    "httpcore2": "httpx2",
    "markupsafe": "jinja2",
    "redis": "limits",
}
# What a user brings along; without it something is estimated.
BROUGHT = {"tiktoken"}
OF_PYDANTIC_AI = {
    "adapters/pydantic_ai.py",
    "agents/budgets.py",
    "agents/model_factory.py",
    "agents/agent_spans.py",
    "agents/agent_run.py",
    "agents/run_tasks.py",
    "agents/runtime.py",
    "agents/template_analysis.py",
    "agents/view_toolset.py",
    "models/clients/model_request.py",
    "models/clients/anthropic_client.py",
    "models/clients/google_client.py",
    "models/clients/openai_client.py",
    "models/language_models.py",
    "models/retries.py",
    "sources/builtin/jinja_rendering.py",
}
# The modules that need an extra; each is imported when it is used. Everything else runs without any.
OF_EXTRAS: dict[str, set[str]] = {
    "agents": OF_PYDANTIC_AI,
    "docs": {
        "sources/builtin/page_text.py",
        "workspace/linear_patterns.py",
        "workspace/parsing/archives.py",
        "workspace/parsing/encodings.py",
        "workspace/parsing/mail.py",
        "workspace/parsing/office.py",
        "workspace/parsing/open_document.py",
        "workspace/parsing/pdf.py",
        "workspace/parsing/rich_text.py",
        "workspace/parsing/listings.py",
        "workspace/parsing/slides.py",
        "workspace/sources/sitemap_source.py",
        "workspace/sqlite/sqlite_database.py",
    },
    "auth": {"auth/tokens.py", "connections/grants.py"},
    "watch": {"workspace/folder_changes.py"},
    "claude": {"adapters/claude_agent_sdk.py"},
    "embeddings": {"models/embedding/fastembed_model.py"},
    "fastmcp": {"adapters/fastmcp.py"},
    "langchain": {"adapters/langchain.py"},
    "openai-agents": {"adapters/openai_agents.py"},
    "pydantic-ai": OF_PYDANTIC_AI,
    # What they name of `opentelemetry` is its API, which comes with the MCP SDK; the exporter is of the extra.
    "otel": {
        "agents/agent_spans.py",
        "egress/client_spans.py",
        "telemetry/call_spans.py",
        "telemetry/otel_metrics.py",
        "telemetry/otel_providers.py",
        "telemetry/otel_sdk.py",
    },
    "postgres": {
        "server/postgres_transport.py",
        "storage/awaited_statement.py",
        "storage/postgres_server.py",
        "sources/builtin/postgres_engine.py",
        "sources/builtin/postgres_connection.py",
        "sources/builtin/postgres_statement.py",
        "workspace/postgres/postgres_database.py",
    },
    "static": {"models/embedding/static_embedder.py"},
    "redis": {"limits/redis_link.py", "limits/redis_store.py", "consent/redis_used_answers.py"},
    # They name SQLAlchemy too, which DBOS comes with.
    "tasks": {
        "tasks/dbos_engine.py",
        "tasks/dbos_setup.py",
        "tasks/worker_lease.py",
        "sources/builtin/sqlalchemy_engine.py",
    },
    "tools": {
        "agents/template_analysis.py",  # of `agents` too, which has jinja2 as well
        "tasks/dbos_engine.py",
        "tasks/dbos_setup.py",
        "sources/builtin/sqlalchemy_engine.py",
        "sources/builtin/page_text.py",
        "sources/builtin/jinja_rendering.py",
        "sources/builtin/smtp_client.py",
        "sources/expressions.py",
    },
}


@cache
def declared() -> dict[str, set[str]]:
    """Return the import names that may be used, by extra; those of the package itself under ''."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = {"": said["dependencies"], **said["optional-dependencies"]}
    found: dict[str, set[str]] = {}
    for extra, requirements in lists.items():
        wanted = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!;\s]", line)[0]).lower() for line in requirements}
        found[extra] = {
            name
            for name, distributions in packages_distributions().items()
            if {re.sub(r"[-_.]+", "-", each).lower() for each in distributions} & wanted
        }
    return found


@cache
def packages_distributions() -> Mapping[str, list[str]]:
    """Return what `importlib` reads of everything that is installed, which takes a third of a second."""
    return read_distributions()


@cache
def imported() -> dict[str, set[str]]:
    """Return the packages of others that the source imports, at once or later, each with its files."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = list[str]()
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(level=0, module=str(module)):
                    names = [module]
                case ast.Call(func=ast.Name(id="LazyModule"), args=[ast.Constant(value=str(module))]):
                    names = [module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top != "pegboard":
                    found.setdefault(top, set()).add(path.relative_to(ROOT / "src/pegboard").as_posix())
    return found


def test_every_import_is_of_a_declared_dependency() -> None:
    known = declared()
    ours = set[str]().union(*known.values()) | BROUGHT
    undeclared = {name: files for name, files in imported().items() if COME_WITH.get(name, name) not in ours}
    assert undeclared == {}


def test_every_dependency_and_every_package_of_an_extra_is_imported() -> None:
    used = set(imported()) | {COME_WITH[name] for name in imported() if name in COME_WITH}
    # Uvicorn finds uvloop by itself, psycopg its binary half, and pypdfium2 its parts.
    of_pdfium = {"pypdfium2_cfg", "pypdfium2_cli", "pypdfium2_raw"}
    by_themselves = {"wordllama", "uvloop", "psycopg_binary", "psycopg_pool", *of_pdfium}
    unused = {name for names in declared().values() for name in names if name not in used and not name.startswith("_")}
    assert unused <= by_themselves, unused


def test_no_extra_is_offered_of_which_nothing_is_imported() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, requirements in said.items():
        # Of wordllama only the files are read.
        for requirement in (each for each in requirements if not each.startswith("wordllama")):
            name = re.split(r"[\[<>=~!;\s]", requirement)[0].lower()
            modules = {module for module, by in packages_distributions().items() if name in map(str.lower, by)}
            assert modules & set(imported()), (extra, requirement)


def test_what_an_extra_brings_is_imported_by_few_modules() -> None:
    known = declared()
    found = {
        extra: set[str]().union(*(imported().get(name, set()) for name in names - known[""]))
        for extra, names in known.items()
        if extra
    }
    elsewhere = {extra: files - OF_EXTRAS.get(extra, set()) for extra, files in found.items()}
    assert {extra: files for extra, files in elsewhere.items() if files} == {}


WITHOUT_EXTRAS = """
import sys
HIDDEN = {hidden!r}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in HIDDEN else real(name, package)
"""


def run_without_extras(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as where no extra is installed."""
    known = declared()
    hidden = {name for extra, names in known.items() if extra for name in names - known[""]} | {"redis"}
    text = WITHOUT_EXTRAS.format(hidden=hidden) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=120)


def test_each_piece_whose_extra_is_missing_says_which_to_install(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(
        textwrap.dedent("""\
        rate_limits: {store: "redis://127.0.0.1:1/0"}
        identity: {jwt: {issuer: "https://i.x", audience: a, jwks_url: "https://i.x"}, map: [{profiles: [p]}]}
        profiles: {p: {}}
        tasks: {store: "sqlite:./tasks.db"}
        tools:
          - {name: hook, type: webhook, description: x, webhook: {url: "https://x.example", result: $.a}}
          - {name: json_transform, type: builtin}
          - {name: web_scrape, type: builtin}
          - {name: send_email, type: builtin, config: {smtp_host: h, from_address: a@example.com}}
          - {name: sql_query, type: builtin, config: {connection_string: "postgresql://h/d"}}
          - {name: sql_query, as: other, type: builtin, config: {connection_string: "mysql://h/d"}}
        """)
    )
    done = run_without_extras(
        "from pegboard.cli import main\nsys.argv = ['pegboard', 'check']\nsys.exit(main())", tmp_path
    )
    assert done.returncode == 2, done.stderr
    command = r"^pegboard\.yaml:(\d+):.*run `(?:uv )?pip install .*\[(\w+)\][^`]*`"
    said = re.findall(command, done.stdout + done.stderr, re.MULTILINE)
    assert sorted(said, key=lambda pair: int(pair[0])) == [
        ("1", "redis"), ("2", "auth"), ("4", "tasks"), ("6", "tools"), ("7", "tools"), ("8", "tools"),
        ("9", "tools"), ("10", "postgres"), ("11", "tools"),
    ]  # fmt: skip
    assert "Traceback" not in done.stderr
