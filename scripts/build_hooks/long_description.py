# SPDX-License-Identifier: Apache-2.0
"""The long description of the package: README.md with absolute links, since a package index knows no file of ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

BRANCH = "main"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:)(?P<target>[^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """What hatchling asks for the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        links = absolute(text, metadata["urls"]["Source"])
        metadata["readme"] = {"content-type": "text/markdown", "text": links}


def absolute(text: str, repository: str) -> str:
    """Return the text with each link to a file of the repository, and each picture, as an address.

    :param text: Markdown.
    :param repository: its address, at a host that shows files below ``blob`` and serves them below ``raw``.
    """

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if target.startswith("#"):
            address = f"{repository}{target}"
        else:
            address = f"{repository}/{'raw' if match['image'] else 'blob'}/{BRANCH}/{target}"
        return f"{match['image']}[{match['text']}]({address})"

    return _LINK.sub(rewritten, text)
