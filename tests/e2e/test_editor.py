"""What an editor shows: the YAML language server, which VS Code and others run, with the schema that we write."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.config.test_editor_dialect import SLIPS, yaml_of_the_docs, yaml_of_the_examples

PEGBOARD = Path(sys.executable).with_name("pegboard")
SERVER = Path(__file__).parent / "clients" / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
pytestmark = pytest.mark.e2e


class Editor:
    """Opens files as an editor does, and says what is underlined in each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["node", SERVER, "--stdio"], stdin=pipe, stdout=pipe, cwd=folder)
        self._opened = 0
        self._send("initialize", id=1, params={"processId": None, "rootUri": folder.as_uri(), "capabilities": {}})
        while self._receive().get("id") != 1:
            pass
        self._send("initialized", params={})

    def underlined(self, text: str) -> list[tuple[int, str]]:
        """Return the lines that are underlined, from 0, with the words."""
        self._opened += 1
        path = self.folder / f"{self._opened}.yaml"
        uri = path.as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1}
        named = f"# yaml-language-server: $schema=./pegboard.schema.json\n{text}"
        self._send("textDocument/didOpen", params={"textDocument": {**document, "text": named}})
        while True:
            message = self._receive()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                found = message["params"]["diagnostics"]
                return [(each["range"]["start"]["line"] - 1, each["message"]) for each in found]

    def _send(self, method: str, **message: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, **message})

    def _write(self, message: Any) -> None:
        assert self.process.stdin is not None
        body = json.dumps(message).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        message = json.loads(self.process.stdout.read(length))
        if "id" in message and "method" in message:
            items = message.get("params", {}).get("items", []) if isinstance(message.get("params"), dict) else []
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": [None for _ in items]})
        return message


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Generator[Editor]:
    folder = tmp_path_factory.mktemp("editor")
    (folder / "pegboard.yaml").write_text("name: a\n")
    subprocess.run([PEGBOARD, "schema", "--editor", "--write"], cwd=folder, check=True)
    shown = Editor(folder)
    with shown.process:
        yield shown
        shown.process.kill()


def test_nothing_is_underlined_in_the_configs_of_the_examples_and_the_docs(editor: Editor) -> None:
    found = {place: editor.underlined(text) for place, text in (*yaml_of_the_examples(), *yaml_of_the_docs())}
    # A type that a plugin brings, and a former name of a key.
    underlined = [place.partition(":")[0] for place, lines in found.items() if lines]
    assert underlined == ["docs/howto/plugins.md", "docs/versions.md"]


@pytest.mark.parametrize("text", SLIPS)
def test_a_slip_is_underlined(editor: Editor, text: str) -> None:
    assert editor.underlined(text)
