"""What mkdocs does not do by itself: files from outside `docs`, and formulas.

The pages are also read in the repository, so their links go to files there: `../CONTRIBUTING.md`,
`../examples/train_tagger.py`. Here those files become part of the site, and the links follow.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "readme.md",
    "THIRD_PARTY_NOTICES.md": "notices.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages of the repository and where they are in the site."""

CODE = {".py": "python", ".toml": "toml"}
"""Files that become a page with their text."""

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FORMULA = re.compile(r"^\$\$(.+)\$\$$", re.MULTILINE)


def _load(name: str) -> Any:
    """A module beside this one: docs is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None  # noqa: PT018 - the file is there
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mathml = _load("mathml")


def site_path(path: str) -> str:
    """Where a file of the repository is in the site.

    >>> site_path("docs/data.md"), site_path("examples/train_tagger.py")
    ('data.md', 'source/examples/train_tagger.md')
    """
    if path in PAGES:
        return PAGES[path]
    if Path(path).suffix in CODE:
        return f"source/{Path(path).with_suffix('.md').as_posix()}"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}"


def repository_path(uri: str) -> str:
    """Where a page of the site is in the repository."""
    own = {there: here for here, there in PAGES.items()}
    return own.get(uri, f"docs/{uri}")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the repository, and every file outside `docs` that a page links to."""
    for path, uri in PAGES.items():
        if (ROOT / path).exists():
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    pages = [file.src_uri for file in files.documentation_pages()]
    linked = {link for uri in pages for link in _links(repository_path(uri))}
    for path in sorted(linked):
        uri, file = site_path(path), ROOT / path
        if files.get_file_from_path(uri) is not None or not file.is_file():
            continue
        if file.suffix in CODE:
            text = f"# {path}\n\n```{CODE[file.suffix]}\n{file.read_text('utf-8').strip()}\n```\n"
            files.append(File.generated(config, uri, content=text))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs calls it so
    """Turns links to files of the repository into links of the site, formulas into MathML."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    here = repository_path(page.file.src_uri)

    def follow(match: re.Match[str]) -> str:
        target = _target(here, match[2])
        if target is None:
            return match[0]
        anchor = match[2].partition("#")[1] + match[2].partition("#")[2]
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"{match[1]}{posixpath.relpath(site_path(target), start)}{anchor}{match[3]}"

    def rewrite(text: str) -> str:
        return FORMULA.sub(lambda found: mathml.convert(found[1]), LINK.sub(follow, text))

    return _outside_fences(markdown, rewrite)


def _outside_fences(text: str, rewrite: Any) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [rewrite(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, rewrite(text[end:])])


def _links(path: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    text = (ROOT / path).read_text("utf-8") if (ROOT / path).exists() else ""
    for match in LINK.finditer(FENCE.sub("", text)):
        target = _target(path, match[2])
        if target is not None:
            yield target


def _target(here: str, link: str) -> str | None:
    """The file of the repository that a link leads to; None for addresses and anchors."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
