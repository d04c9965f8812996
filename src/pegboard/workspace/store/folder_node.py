"""FolderNode: a folder tree, and its cut to a number of nodes."""

from __future__ import annotations

from itertools import islice

from pegboard.model.json_types import JSON
from pegboard.workspace.store.readable_spaces import as_path


class FolderNode:
    """One folder: its folders and documents, and the number of documents including subfolders."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.folders: dict[str, FolderNode] = {}
        self.documents: list[tuple[str, str]] = []
        self._document_count = 0

    def add(self, path: str, *, document_count: int = 0) -> FolderNode:
        """Return the folder at this path, created with its parents if necessary.

        Their document counts increase by `document_count`.
        """
        node = self
        node._document_count += document_count
        rest = path[len(self.path) :].strip("/")
        for name in rest.split("/") if rest else ():
            node = node.folders.setdefault(name, FolderNode(name, as_path(node.path, name)))
            node._document_count += document_count
        return node

    def count_nodes(self) -> int:
        """Return the number of folders and documents, including this folder."""
        count = 0
        waiting: list[FolderNode] = [self]
        while waiting:
            node = waiting.pop()
            count += 1 + len(node.documents)
            waiting.extend(node.folders.values())
        return count

    def cut(self, *, max_depth: int, max_nodes: int) -> tuple[JSON, int]:
        """Return the folder as JSON, filled level by level up to a limit, and the number of nodes shown.

        A folder's omitted items are counted in `more`.
        """
        tree, shown = self._as_json(), 1
        level = [(self, tree)]
        for depth in range(max_depth + 1):
            following: list[tuple[FolderNode, JSON]] = []
            for node, entry in level:
                room = max(0, max_nodes - shown) if depth < max_depth else 0
                folders = [(folder, folder._as_json()) for folder in islice(node.folders.values(), room)]
                documents = node.documents[: room - len(folders)]
                if folders:
                    entry["folders"] = [inner for _, inner in folders]
                if documents:
                    entry["documents"] = [{"name": name, "document_id": known_as} for name, known_as in documents]
                fitting = len(folders) + len(documents)
                if more := len(node.folders) + len(node.documents) - fitting:
                    entry["more"] = more
                shown += fitting
                following += folders
            level = following
        return tree, shown

    def _as_json(self) -> JSON:
        return {"name": self.name, "path": f"/{self.path}", "document_count": self._document_count}


def drawn(tree: JSON) -> str:
    """Return a folder from `cut` as an indented text."""
    return "\n".join(_lines(tree, ""))


def _lines(tree: JSON, indent: str) -> list[str]:
    count = tree["document_count"]
    lines = [f"{indent}{tree['name']}/ ({count} document{'' if count == 1 else 's'})"]
    for folder in tree.get("folders", ()):
        lines += _lines(folder, indent + "  ")
    lines += [f"{indent}  {document['name']}" for document in tree.get("documents", ())]
    if "more" in tree:
        lines.append(f"{indent}  … {tree['more']} more")
    return lines
