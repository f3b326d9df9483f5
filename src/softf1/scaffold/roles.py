"""Which of several files is train, which is dev, which is test: by their names, else by order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = ("train", "dev", "test")

WORDS = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "devel": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "testa": "dev",  # CoNLL-2003 calls its two test files so
    "test": "test",
    "testb": "test",
}


def assign_roles(paths: Sequence[str]) -> dict[str, str]:
    """The path of each role, train first.

    A word in the name decides, such as train, dev, valid, test; the others take the roles that are
    left, in order. One file alone is train, whatever its name.

    >>> assign_roles(["a/dev.txt", "a/train.txt"])
    {'train': 'a/train.txt', 'dev': 'a/dev.txt'}
    >>> assign_roles(["first.csv", "second.csv"])
    {'train': 'first.csv', 'dev': 'second.csv'}
    """
    if len(paths) > len(ROLES):
        raise InputError(f"wanted at most a train, a dev and a test file, got {len(paths)} files")
    if len(paths) == 1:
        return {"train": paths[0]}
    roles: dict[str, str] = {}
    for path in paths:
        role = _named_role(path)
        if role in roles:
            raise InputError(f"wanted one {role} file, got {roles[role]} and {path}")
        if role:
            roles[role] = path
    left = [role for role in ROLES if role not in roles]
    rest = [path for path in paths if path not in roles.values()]
    roles |= dict(zip(left, rest, strict=False))
    if "train" not in roles:
        raise InputError(f"wanted a training file among them, got {_described(roles)}")
    return {role: roles[role] for role in ROLES if role in roles}


def _named_role(path: str) -> str | None:
    """What the name of the file says, else that of its folder."""
    for part in list(reversed(re.split(r"[/\\]", path)))[:2]:
        found = {WORDS[word] for word in re.findall(r"[a-z]+", part.lower()) if word in WORDS}
        if len(found) == 1:
            return found.pop()
    return None


def _described(roles: dict[str, str]) -> str:
    return " and ".join(f"{path} ({role})" for role, path in roles.items())
