"""Build the site of the repository's Markdown: pages outside `docs/`, the API reference, and links between all of them.

MkDocs reads `docs/`. The README, ARCHITECTURE, CONTRIBUTING, the CHANGELOG and `topologies/README.md` are pages too.
Links are written for readers of the repository, so each one is resolved there and written again for the site. A link to
a file that is no page (a source file, a folder) becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# a file of the repository → its place in the site
OUTSIDE = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "topologies/README.md": "project/topologies.md",
}
API = {
    "api/binlog.md": ("The binlog library", "ingest.binlog"),
    "api/ddl.md": ("The DDL reader", "ingest.ddl.statements"),
    "api/wait.md": ("Wait for a write", "tailorbird.operate.wait.run_wait"),
}
LISTED = {"adr": "Decisions", "results": "Measurements"}  # folders that get a page which lists theirs
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside `docs/` and the API reference."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, (title, module) in API.items():
        files.append(File.generated(config, page, content=f"# {title}\n\n::: {module}\n"))
    for folder, title in LISTED.items():
        lines = [f"- [{_title(path)}]({path.name})" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
        files.append(File.generated(config, f"{folder}/index.md", content="\n".join([f"# {title}", "", *lines, ""])))
    return files


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Rewrite the relative links of a page for the site."""
    place = page.file.src_uri
    source = next((name for name, page_ in OUTSIDE.items() if page_ == place), f"docs/{place}")

    def rewritten(found: re.Match[str]) -> str:
        image, text, link = found.groups()
        path, _, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        at = OUTSIDE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if at is not None and files.get_file_from_path(at) is not None:
            where = posixpath.relpath(at, posixpath.dirname(place) or ".")
            return f"{image}[{text}]({where}{'#' + anchor if anchor else ''})"
        if not (ROOT / target).exists():  # MkDocs reports it in strict mode
            return found[0]
        listed = f"{at}/index.md"
        return f"[{text}]({posixpath.relpath(listed, posixpath.dirname(place) or '.')})" if at in LISTED else text

    return LINK.sub(rewritten, markdown)
