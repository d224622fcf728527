"""A hook of mkdocs: files of the repository's root are pages of the site, too, written once."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file under its page's name, with links that start from docs/ instead of the root."""
    root = Path(config.docs_dir).parent
    for name, page in PAGES.items():
        text = (root / name).read_text(encoding="utf-8").replace("](docs/", "](")
        for other, target in PAGES.items():
            text = text.replace(f"]({other}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links from docs/ to such a file, which work on GitHub as they are, lead to its page."""
    for name, page in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return markdown
