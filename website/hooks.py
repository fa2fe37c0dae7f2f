"""Hooks of the documentation site (mkdocs.yml).

The pages are written for GitHub: all links are relative paths, even links to files that are not pages of the site. The
hooks turn the files in ``_PAGES`` into pages, rewrite links to other files of the repository, and complete the
navigation.
"""

from __future__ import annotations

import importlib.metadata
import posixpath
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parents[1]
_DOCS = _ROOT / "docs"
#: Files outside docs/ that become pages of the site.
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
#: Pictures that website/screenshots.py renders. If a picture exists, it is added below the first paragraph of its page.
_PICTURES = {
    "tutorial.md": "tail.png",
    "report.md": "report.png",
    "guides/see-uptime.md": "report-terminal.png",
    "cli.md": "check.png",
}
#: Width and font size of diagrams with up to 120 columns.
# The theme's own colours have too little contrast, and only their colour distinguishes its links from the text.
_STYLE = """
.md-grid { max-width: 76rem }
.md-typeset pre { font-size: 0.65rem }
.md-tabs__link { opacity: 1 }
.md-typeset a:not(.headerlink) { text-decoration: underline }
.md-copyright, .md-copyright a { color: #c8ccd4 }
[data-md-color-scheme="default"] {
  --md-code-hl-operator-color: #555; --md-code-hl-punctuation-color: #555; --md-code-hl-comment-color: #555;
  --md-code-hl-variable-color: #555;
}
[data-md-color-scheme="slate"][data-md-color-primary] {
  --md-typeset-a-color: #8fb0f0; --md-code-hl-number-color: #f28b80; --md-code-hl-constant-color: #b3a6f2;
}
"""
# The theme gives the buttons of each code block a region without a name, when the block is shown.
_SCRIPT = """
new MutationObserver(() => document.querySelectorAll(".md-code__nav").forEach((one, number) => {
  const name = `Code block ${number + 1}`;
  if (one.getAttribute("aria-label") !== name) one.setAttribute("aria-label", name);
})).observe(document.body, { childList: true, subtree: true });
"""
_SEARCH = 'data-md-component="search" role="dialog"'
_LINK = re.compile(r"(?P<code>```.*?```|`[^`\n]*`)|(?<=\]\()(?P<target>[^)\s]+)(?=\))", re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    """Set the URL of the repository from the package metadata, the only place that contains this URL."""
    urls = importlib.metadata.metadata("spark-events").get_all("Project-URL") or []
    config.repo_url = next(url.partition(", ")[2] for url in urls if url.startswith("Homepage"))
    config.repo_name = "GitHub"


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages outside docs/, the index of decisions and the pictures, and expand the navigation."""
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(_ROOT / source)))
    files.append(File.generated(config, "site.css", content=_STYLE))
    files.append(File.generated(config, "site.js", content=_SCRIPT))
    titles = [
        (path.name, path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "))
        for path in sorted((_DOCS / "decisions").glob("*.md"))
    ]
    index = "# Decisions\n\n" + "".join(f"- [{title}]({name})\n" for name, title in titles)
    files.append(File.generated(config, "decisions/index.md", content=index))
    for picture in _PICTURES.values():
        path = _ROOT / "build" / "screenshots" / picture
        if path.exists() and files.get_file_from_path(f"images/{picture}") is None:
            files.append(File.generated(config, f"images/{picture}", abs_src_path=str(path)))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = _expanded(config.nav, pages)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search dialog for screen readers."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same on the page for unknown addresses, which is a template."""
    return output_content.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def _expanded(entries: Any, pages: list[str]) -> Any:
    """Replace ``folder/*`` with the pages of the folder, except its index."""
    if isinstance(entries, dict):
        return {title: _expanded(below, pages) for title, below in entries.items()}
    if not isinstance(entries, list):
        return entries
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            found += [page for page in pages if fnmatchcase(page, entry) and not page.endswith("/index.md")]
        else:
            found.append(_expanded(entry, pages))
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, parse Markdown inside ``<details>``, and add the picture of the page."""
    source = Path(page.file.abs_src_path or _DOCS / page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if match["code"] or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        return _address((source.parent / path).resolve(), page.file.src_uri, config) + hash_sign + anchor

    markdown = _LINK.sub(rewritten, markdown).replace("<details>", '<details markdown="1">')
    picture = f"images/{_PICTURES.get(page.file.src_uri)}"
    if files.get_file_from_path(picture):
        title, first, rest = markdown.split("\n\n", 2)
        link = posixpath.relpath(picture, posixpath.dirname(page.file.src_uri) or ".")
        markdown = f"{title}\n\n{first}\n\n![Screenshot of {page.file.src_uri.removesuffix('.md')}]({link})\n\n{rest}"
    return markdown


def _address(linked: Path, page: str, config: MkDocsConfig) -> str:
    """Return the link from a page of the site to a file in the repository."""
    in_repository = linked.relative_to(_ROOT).as_posix()
    if in_repository in _PAGES:
        uri = _PAGES[in_repository]
    elif linked == _DOCS / "decisions":
        uri = "decisions/index.md"
    elif linked.is_relative_to(_DOCS):
        uri = linked.relative_to(_DOCS).as_posix()
    elif linked.exists():
        return f"{config.repo_url}/{'tree' if linked.is_dir() else 'blob'}/main/{in_repository}"
    else:
        uri = in_repository  # mkdocs itself reports this link.
    return posixpath.relpath(uri, posixpath.dirname(page) or ".")
