"""What every page has, whatever is on it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path


def test_the_policy_knows_our_script_and_our_style_alone(compared: Path) -> None:
    html = compared.read_text(encoding="utf-8")
    (content,) = re.findall(r'Policy" content="([^"]+)"', html)
    policy = dict(rule.split(" ", 1) for rule in content.split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src-elem")):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert len(content) == 1
        assert html.count(f"<{tag}") == 1
        assert (
            policy[rule]
            == f"'sha256-{base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()}'"
        )
    assert "unsafe" not in policy["script-src"]
